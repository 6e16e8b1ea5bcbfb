"""OpenAI's request and response bodies. Unsupported fields are refused by name."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specscope.engine.api import MODES, SamplingParams
from specscope.engine.decode.checks import COUNT_MAX
from specscope.engine.errors import BadRequest
from specscope.engine.pair import Pair

DEFAULT_TOKENS = 128
MOST_PROMPTS = 64
UNDERSTOOD = {
    "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p",
    "top_k", "seed", "stop", "stream", "stream_options", "user", "mode", "ignore_eos",
}  # fmt: skip
WITHOUT_EFFECT = {
    "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction",
    "parallel_tool_calls",
}  # fmt: skip
"""Of OpenAI's fields those that never change a text."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "store": (False,),
    "logprobs": (False,), "top_logprobs": (0,), "logit_bias": ({},),
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,),
    "min_p": (0,), "min_tokens": (0,), "stop_token_ids": ([],),
    "response_format": ({"type": "text"},), "modalities": (["text"],),
    "tools": ([],), "tool_choice": ("none", "auto"),
    "functions": ([],), "function_call": ("none", "auto"),
    "service_tier": ("auto", "default"), "reasoning_effort": ("none",), "verbosity": ("medium",),
}  # fmt: skip
"""Fields that would change the answer in a way that is not there, with what leaves it alone."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A parsed request; several prompts share its settings and give one choice each."""

    prompts: list[list[int]]
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


def parse_request(
    body: Any, pair: Pair, chat: bool, most_bytes: int | None = None
) -> GenerationRequest:
    """A completion or chat body as a request.

    most_bytes: length of a text that can fit the context. A longer one is refused unread, since
    tokenising it would take time for nothing.

    Raises BadRequest, with the name of the field, for what is malformed, for what would change the
    answer and is not there, and for what is not known.
    """
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for name, value in body.items():
        if value is not None:
            _check_field(name, value, UNDERSTOOD - {"prompt" if chat else "messages"})
    model = body.get("model")
    if model is not None and model != pair.name:
        raise BadRequest(f"there is no model {model!r}, only {pair.name!r}", "model")
    options = _typed(body, "stream_options", dict, {})
    prompts = [_encoded(_transcript(body), pair, most_bytes)] if chat else None
    return GenerationRequest(
        prompts=prompts or _prompts(body.get("prompt"), pair, most_bytes),
        params=_params(body, pair),
        stream=_typed(body, "stream", bool, False),
        usage_in_stream=_typed(options, "include_usage", bool, False),
        chat=chat,
        user=_typed(body, "user", str, ""),
    )


def _check_field(name: str, value: Any, understood: set[str]) -> None:
    if name in NEUTRAL:
        # In JSON neither is 0 false nor 1 true: `logprobs: 0` asks for something.
        flag = isinstance(value, bool)
        if not any(value == one and isinstance(one, bool) == flag for one in NEUTRAL[name]):
            only = " or ".join(json.dumps(one) for one in NEUTRAL[name])
            raise BadRequest(f"{name} other than {only} is not supported", name)
    elif name not in understood | WITHOUT_EFFECT:
        raise BadRequest(f"{name[:64]!r} is not a field that is understood here", name[:64])


def _typed(body: dict[str, Any], name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(f"{name} has the wrong type", name)
    return value


def _number(body: dict[str, Any], name: str, default: float) -> float:
    try:
        return float(_typed(body, name, (int, float), default))
    except OverflowError as error:
        raise BadRequest(f"{name} is beyond all numbers", name) from error


def _prompts(given: Any, pair: Pair, most_bytes: int | None) -> list[list[int]]:
    """A text, token ids, or a list of either."""
    several = (
        isinstance(given, list) and bool(given) and all(isinstance(p, str | list) for p in given)
    )
    prompts = given if several else [given]
    if len(prompts) > MOST_PROMPTS:
        raise BadRequest(f"at most {MOST_PROMPTS} prompts, not {len(prompts)}", "prompt")
    encoded = []
    for prompt in prompts:
        if isinstance(prompt, str):
            encoded.append(_encoded(prompt, pair, most_bytes))
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            encoded.append(list(prompt))
        else:
            raise BadRequest("prompt must be a text, token ids, or a list of either", "prompt")
    return encoded


def _encoded(text: str, pair: Pair, most_bytes: int | None) -> list[int]:
    # Characters first: a byte each at least, and counting them costs nothing.
    if most_bytes is not None and (len(text) > most_bytes or len(text.encode()) > most_bytes):
        raise BadRequest(
            f"the prompt is too long: more than {most_bytes} bytes cannot fit", "prompt"
        )
    return pair.encode(text)


def _transcript(body: dict[str, Any]) -> str:
    """The messages as plain text: these are base models without a chat template."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty", "messages")
    lines = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role", "user"), str):
            raise BadRequest("each message needs a role and a text as content", "messages")
        if message.get("tool_calls") or message.get("function_call"):
            raise BadRequest("messages with calls of tools are not supported", "messages")
        lines.append(f"{message.get('role', 'user')}: {_content(message.get('content'))}")
    return "\n".join([*lines, "assistant:"])


def _content(content: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise BadRequest("each message needs a role and a text as content", "messages")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else part
        if kind != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(f"messages with parts of type {kind!r} are not supported", "messages")
    return "".join(part["text"] for part in content)


def _params(body: dict[str, Any], pair: Pair) -> SamplingParams:
    ends = () if _typed(body, "ignore_eos", bool, False) else pair.eos
    mode, top_k = _typed(body, "mode", str, "coupled"), _typed(body, "top_k", int, 0)
    if mode not in MODES:
        raise BadRequest(f"mode must be one of {', '.join(MODES)}", "mode")
    return SamplingParams(
        temperature=_number(body, "temperature", 1.0),
        top_p=_number(body, "top_p", 1.0),
        top_k=0 if top_k == -1 else top_k,  # some clients say -1 where they mean none
        seed=_typed(body, "seed", int, random.getrandbits(62)),
        max_new_tokens=_tokens(body),
        mode=mode,
        stop=_stop(body.get("stop")),
        eos=ends,
    )


def _tokens(body: dict[str, Any]) -> int:
    """The number of tokens; the newer field name takes precedence."""
    for name in ("max_completion_tokens", "max_tokens"):
        most: int | None = _typed(body, name, int, None)
        if most is not None and not 1 <= most <= COUNT_MAX:
            raise BadRequest(f"{name} must be in 1..{COUNT_MAX}, not {most}", name)
        if most is not None:
            return most
    return DEFAULT_TOKENS


def _stop(given: Any) -> tuple[str, ...]:
    stops: Sequence[Any] = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise BadRequest("stop must be a text or a list of texts", "stop")
    if len(stops) > 8:
        raise BadRequest("at most 8 stop strings", "stop")
    return tuple(stops)


REASONS = {"eos": "stop", "stop": "stop", "length": "length", "abort": "abort"}
DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """The common fields of all bodies of one answer."""

    id: str
    model: str
    created: int
    """Unix time in seconds, the same in all of a stream's events."""
    generation: GenerationRequest

    def complete(self, answers: Sequence[tuple[str, str]], tokens: int) -> dict[str, Any]:
        """The body of an answer that was not streamed: each choice's text and end reason.

        tokens: emitted by all choices.
        """
        choices = []
        for index, (text, reason) in enumerate(answers):
            message = {"message": {"role": "assistant", "content": text}}
            content = message if self.generation.chat else {"text": text}
            choices.append(_choice(index, content, reason))
        kind = "chat.completion" if self.generation.chat else "text_completion"
        return self._frame(kind, choices) | {"usage": self._usage(tokens)}

    def piece(self, index: int, text: str, reason: str | None, first: bool) -> dict[str, Any]:
        """An event of a stream: new text of one choice, and at its end the reason."""
        delta = ({"role": "assistant"} if first else {}) | {"content": text}
        content: dict[str, Any] = {"delta": delta} if self.generation.chat else {"text": text}
        return self._event([_choice(index, content, reason)], None)

    def usage_alone(self, tokens: int) -> dict[str, Any]:
        """The last event of a stream whose client asked for the usage."""
        return self._event([], self._usage(tokens))

    def _event(self, choices: list[Any], usage: dict[str, int] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.generation.chat else "text_completion"
        told = {"usage": usage} if self.generation.usage_in_stream else {}
        return self._frame(kind, choices) | told

    def _frame(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "choices": choices,
        }  # fmt: skip

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = sum(map(len, self.generation.prompts))
        return {
            "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
        }  # fmt: skip


def event(body: dict[str, Any]) -> str:
    """A body as a server-sent event."""
    return f"data: {json.dumps(body)}\n\n"


def error_body(
    message: str, kind: str = "invalid_request_error", param: str | None = None
) -> dict[str, Any]:
    """The body of an error; param: the field of the request that is wrong."""
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}


def _choice(index: int, content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    finish = None if reason is None else REASONS[reason]
    return {"index": index, "finish_reason": finish, "logprobs": None} | content
