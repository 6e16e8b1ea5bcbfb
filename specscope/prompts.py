"""Prompts for a server: from a file, or the bundled ones of the reference engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from specscope.errors import InputError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. body: `prompt` or `messages` of a request."""

    number: int
    label: str
    body: dict[str, Any]

    @property
    def chat(self) -> bool:
        """Whether it uses the chat route."""
        return "messages" in self.body


def read_prompts(path: Path | None, most: int | None = None) -> list[Prompt]:
    """Prompts of a file, or the bundled ones; at most `most`, evenly spread.

    The file is JSON lines or, as in ShareGPT, one list of JSON objects. Each object has `prompt`
    (text or token ids), `text`, `messages` or `conversations`, and optionally a `label`. For
    `conversations`, the prompt is the turns before the first answer; an object without such turns
    is skipped.

    Raises InputError, which names the line.
    """
    if path is None:
        text = (files("specscope.engine") / "bundled" / "prompts.jsonl").read_text()
    else:
        text = path.read_text(errors="replace")
    named = "bundled prompts" if path is None else str(path)
    found = [prompt for prompt in _prompts(text, named) if prompt is not None]
    if not found:
        raise InputError(f"{named}: no prompt in it")
    return _spread(found, most)


def _prompts(text: str, named: str) -> Iterator[Prompt | None]:
    if text.lstrip().startswith("["):
        for number, entry in enumerate(_parsed(text, named), start=1):
            yield _prompt(number, entry, f"{named}, entry {number}")
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            where = f"{named}, line {number}"
            yield _prompt(number, _parsed(line, where), where)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error


def _prompt(number: int, entry: Any, where: str) -> Prompt | None:
    if not isinstance(entry, dict):
        raise InputError(f"{where}: not an object")
    label = str(entry.get("label", ""))
    if isinstance(entry.get("conversations"), list):
        turns = _asked(entry["conversations"], where)
        return Prompt(number, label, {"messages": turns}) if turns else None
    if isinstance(entry.get("messages"), list) and entry["messages"]:
        return Prompt(number, label, {"messages": entry["messages"]})
    prompt = entry.get("prompt", entry.get("text"))
    if not isinstance(prompt, str | list) or not prompt:
        raise InputError(f"{where}: needs `prompt`, `text`, `messages` or `conversations`")
    return Prompt(number, label, {"prompt": prompt})


_ROLES = {"human": "user", "user": "user", "system": "system"}


def _asked(conversation: list[Any], where: str) -> list[dict[str, str]]:
    """The turns before the first answer; none without a question."""
    turns = []
    for turn in conversation:
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            raise InputError(f"{where}: a turn of its conversation is no object with a text")
        role = _ROLES.get(str(turn.get("from")))
        if role is None:
            break
        turns.append({"role": role, "content": turn["value"]})
    return turns if any(turn["role"] == "user" and turn["content"] for turn in turns) else []


def _spread(prompts: Sequence[Prompt], most: int | None) -> list[Prompt]:
    if most is None or most >= len(prompts):
        return list(prompts)
    return [prompts[index * len(prompts) // most] for index in range(most)]
