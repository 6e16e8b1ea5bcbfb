"""OpenAI's response bodies: an answer whole or as the events of a stream, and errors."""

import json
from dataclasses import dataclass
from typing import Any

from specscope.engine.openai_request import Asked

REASONS = {"eos": "stop", "stop": "stop", "length": "length", "abort": "abort"}
DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """Everything that the bodies of one answer have in common."""

    id: str
    model: str
    created: int
    """Unix time in seconds, the same in all of a stream's events."""
    asked: Asked

    def whole(self, text: str, reason: str, tokens: int) -> dict[str, Any]:
        """The body of an answer that was not streamed; tokens: how many came out."""
        said = {"role": "assistant", "content": text}
        choice = {"message": said} if self.asked.chat else {"text": text}
        kind = "chat.completion" if self.asked.chat else "text_completion"
        return self._frame(kind, [_choice(choice, reason)]) | {"usage": self._usage(tokens)}

    def piece(self, text: str, reason: str | None, first: bool) -> dict[str, Any]:
        """An event of a stream: text that was not in those before, and at the end the reason."""
        said = ({"role": "assistant"} if first else {}) | {"content": text}
        choice: dict[str, Any] = {"delta": said} if self.asked.chat else {"text": text}
        return self._event([_choice(choice, reason)], None)

    def usage_alone(self, tokens: int) -> dict[str, Any]:
        """The last event of a stream whose client asked for the usage."""
        return self._event([], self._usage(tokens))

    def _event(self, choices: list[Any], usage: dict[str, int] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.asked.chat else "text_completion"
        told = {"usage": usage} if self.asked.usage_in_stream else {}
        return self._frame(kind, choices) | told

    def _frame(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "choices": choices,
        }  # fmt: skip

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = len(self.asked.prompt)
        return {
            "prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
        }  # fmt: skip


def event(body: dict[str, Any]) -> str:
    """A body as a server-sent event."""
    return f"data: {json.dumps(body)}\n\n"


def problem(
    message: str, kind: str = "invalid_request_error", param: str | None = None
) -> dict[str, Any]:
    """The body of an error; param: the field of the request that is wrong."""
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}


def _choice(content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    finish = None if reason is None else REASONS[reason]
    return {"index": 0, "finish_reason": finish, "logprobs": None} | content
