"""The OpenAI request and response bodies: what is understood, what is refused and why."""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specscope.engine.api import SamplingParams
from specscope.engine.bundled import Pair
from specscope.engine.errors import BadRequest

MODES = ("greedy", "rejection", "coupled")
REASONS = {"eos": "stop", "stop": "stop", "length": "length", "abort": "abort"}
ONLY: dict[str, Any] = {"n": 1, "best_of": 1, "echo": False, "repetition_penalty": 1}
WITHOUT = (
    "logprobs", "top_logprobs", "suffix", "tools", "functions", "response_format", "logit_bias",
    "frequency_penalty", "presence_penalty", "min_p", "min_tokens", "stop_token_ids",
)  # fmt: skip
"""What would change the answer and is not there: better refused than passed over in silence."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as understood."""

    prompt: list[int]
    params: SamplingParams
    stream: bool
    usage_in_stream: bool
    chat: bool
    user: str


def parse(raw: bytes) -> Any:
    """The JSON of a body; raises BadRequest where it is none, or holds half a character."""
    try:
        text = raw.decode()
        body = json.loads(text)
        if "\\u" in text:
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the body holds half of a surrogate pair, which is no text") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    return body


def understand(body: Any, pair: Pair, chat: bool) -> Asked:
    """A completion or chat body as a request; raises BadRequest with what is wrong with it."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for name, only in ONLY.items():
        given = body.get(name)
        if given is not None and (given != only or isinstance(given, bool) != (only is False)):
            raise BadRequest(f"{name} other than {only} is not supported")
    for name in WITHOUT:
        if body.get(name):
            raise BadRequest(f"{name} is not supported")
    model = body.get("model", pair.name)
    if model != pair.name:
        raise BadRequest(f"there is no model {model!r}, only {pair.name!r}")
    text = _messages(body.get("messages")) if chat else body.get("prompt")
    options = _typed(body, "stream_options", dict, {})
    return Asked(
        prompt=_prompt(text, pair),
        params=_params(body, pair),
        stream=_typed(body, "stream", bool, False),
        usage_in_stream=_typed(options, "include_usage", bool, False),
        chat=chat,
        user=_typed(body, "user", str, ""),
    )


def response(id: str, model: str, asked: Asked, text: str, reason: str, tokens: int) -> Any:
    """The body of an answer that was not streamed."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": REASONS[reason], "logprobs": None}
    if asked.chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = "chat.completion" if asked.chat else "text_completion"
    return _frame(id, model, kind, [choice]) | {"usage": usage(asked, tokens)}


def piece(id: str, model: str, asked: Asked, text: str, reason: str | None, first: bool) -> Any:
    """One event of a stream."""
    finish = None if reason is None else REASONS[reason]
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    if asked.chat:
        choice["delta"] = ({"role": "assistant"} if first else {}) | {"content": text}
    else:
        choice["text"] = text
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    return _frame(id, model, kind, [choice])


def last_piece(id: str, model: str, asked: Asked, tokens: int) -> Any:
    """The event that carries the usage alone."""
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    return _frame(id, model, kind, []) | {"usage": usage(asked, tokens)}


def usage(asked: Asked, tokens: int) -> dict[str, int]:
    """Token counts."""
    return {
        "prompt_tokens": len(asked.prompt),
        "completion_tokens": tokens,
        "total_tokens": len(asked.prompt) + tokens,
    }


def problem(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _frame(id: str, model: str, kind: str, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": id, "object": kind, "created": int(time.time()), "model": model, "choices": choices,
    }  # fmt: skip


def _typed(body: dict[str, Any], name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(f"{name} has the wrong type")
    return value


def _number(body: dict[str, Any], name: str, default: float) -> float:
    try:
        return float(_typed(body, name, (int, float), default))
    except OverflowError as error:
        raise BadRequest(f"{name} is beyond all numbers") from error


def _prompt(given: Any, pair: Pair) -> list[int]:
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str | list):
        given = given[0]
    if isinstance(given, str):
        return pair.encode(given)
    if isinstance(given, list) and all(type(token) is int for token in given):
        return list(given)
    raise BadRequest("prompt must be one text or one list of token ids")


def _messages(messages: Any) -> str:
    """A plain transcript: these are base models without a chat template."""
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty")
    lines = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise BadRequest("each message needs a role and a text as content")
        lines.append(f"{message.get('role', 'user')}: {message['content']}")
    return "\n".join([*lines, "assistant:"])


def _params(body: dict[str, Any], pair: Pair) -> SamplingParams:
    most = _typed(body, "max_completion_tokens", int, _typed(body, "max_tokens", int, 128))
    ends = () if _typed(body, "ignore_eos", bool, False) else pair.eos
    mode, top_k = _typed(body, "mode", str, "coupled"), _typed(body, "top_k", int, 0)
    if mode not in MODES:
        raise BadRequest(f"mode must be one of {', '.join(MODES)}")
    return SamplingParams(
        temperature=_number(body, "temperature", 1.0),
        top_p=_number(body, "top_p", 1.0),
        top_k=0 if top_k == -1 else top_k,  # some clients say -1 where they mean none
        seed=_typed(body, "seed", int, random.getrandbits(62)),
        max_new_tokens=most,
        mode=mode,
        stop=_stop(body.get("stop")),
        eos=ends,
    )


def _stop(given: Any) -> tuple[str, ...]:
    stops: Sequence[Any] = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise BadRequest("stop must be a text or a list of texts")
    if len(stops) > 8:
        raise BadRequest("at most 8 stop strings")
    return tuple(stops)
