"""One question to one OpenAI-compatible server, answered greedily and in one piece."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import httpx

from specscope.errors import InputError
from specscope.evaluate.outputs.divergence import Completion
from specscope.prompts import Prompt
from specscope.served import Served, said

# Token ids instead of texts, which two tokens may share; servers that do not know it ignore it.
_TOKEN_IDS = {"return_tokens_as_token_ids": True}
_RULED_OUT = 9999.0  # as vLLM writes it; infinity is no JSON
_REFUSED = (400, 404, 422, 501)


class AskedServer(Served):
    """A server under one base address. detailed: whether it returns tokens and log-probabilities,
    which the first question shows."""

    def __init__(self, name: str, url: str, client: httpx.AsyncClient, model: str | None) -> None:
        super().__init__(url, client, model)
        self.name, self.detailed = name, True

    async def ask(self, prompt: Prompt, most_tokens: int) -> Completion:
        """Ask one question. Raises InputError without a complete answer."""
        if self.detailed:
            answer = await self._post(prompt, most_tokens, _details(prompt.chat))
            if answer.status_code not in _REFUSED:
                return self._read(answer, prompt)
        plain = await self._post(prompt, most_tokens, {})
        if plain.status_code == 200:
            self.detailed = False  # the details were refused, and not the prompt
        return self._read(plain, prompt)

    async def _post(
        self, prompt: Prompt, most_tokens: int, details: Mapping[str, Any]
    ) -> httpx.Response:
        body = {
            **prompt.body, "model": self.model, "temperature": 0.0, "max_tokens": most_tokens,
            **details,
        }  # fmt: skip
        route = "chat/completions" if prompt.chat else "completions"
        try:
            return await self._client.post(f"{self.url}/v1/{route}", json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise InputError(f"{self.name} {self.url}: {said(error)}") from error

    def _read(self, answer: httpx.Response, prompt: Prompt) -> Completion:
        where = f"{self.name} {self.url}, prompt {prompt.number}"
        if answer.status_code != 200:
            text = " ".join(answer.text.split())[:200]
            raise InputError(f"{where}: HTTP {answer.status_code}: {text}")
        try:
            return read_answer(answer.json(), prompt.chat)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: not an answer of OpenAI's API: {error!r}") from error


def read_answer(body: Mapping[str, Any], chat: bool) -> Completion:
    """An answer's text, and its tokens if it has them. Raises the parser's exceptions for an
    invalid body."""
    choice = body["choices"][0]
    text = choice["message"]["content"] if chat else choice["text"]
    usage = body.get("usage") or {}
    count = usage.get("completion_tokens")
    details = choice.get("logprobs")
    if not details:
        return Completion(text or "", count)
    if chat:
        entries = details["content"] or []
        tokens = tuple(str(entry["token"]) for entry in entries)
        logprobs = tuple(float(entry["logprob"]) for entry in entries)
        tops = [[float(top["logprob"]) for top in entry["top_logprobs"] or ()] for entry in entries]
    else:
        tokens = tuple(map(str, details["tokens"]))
        logprobs = tuple(map(float, details["token_logprobs"]))
        tops = [list(map(float, (top or {}).values())) for top in details["top_logprobs"] or ()]
    if not all(map(math.isfinite, logprobs)):
        raise ValueError("an emitted token has no finite log-probability")
    return Completion(text or "", count, tokens, logprobs, tuple(map(_margin, tops)))


def _margin(tops: list[float]) -> float | None:
    """Margin of the best over the second-best token, which a mask may exclude."""
    best = sorted(tops, reverse=True)[:2]
    return min(best[0] - best[1], _RULED_OUT) if len(best) == 2 else None


def _details(chat: bool) -> dict[str, Any]:
    if chat:
        return {"logprobs": True, "top_logprobs": 2, **_TOKEN_IDS}
    return {"logprobs": 2, **_TOKEN_IDS}
