"""What is asked: JSON lines of one's own, or the prompts that come with the reference engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from specscope.errors import InputError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. body: `prompt` or `messages` of a request."""

    number: int
    label: str
    body: dict[str, Any]

    @property
    def chat(self) -> bool:
        """Whether it goes to the chat route."""
        return "messages" in self.body


def read_prompts(path: Path | None, most: int | None = None) -> list[Prompt]:
    """Prompts of a file, or the bundled ones; of those `most`, evenly spread.

    A line is an object with `prompt` (text or token ids), `text` or `messages`, and perhaps a
    `label`. Raises InputError, which names the line.
    """
    if path is None:
        lines = (files("specscope.engine") / "bundled" / "prompts.jsonl").read_text().splitlines()
    else:
        lines = path.read_text(errors="replace").splitlines()
    named = "bundled prompts" if path is None else str(path)
    found = [
        _prompt(number, line, f"{named}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not found:
        raise InputError(f"{named}: no prompt in it")
    return _spread(found, most)


def _prompt(number: int, line: str, where: str) -> Prompt:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(entry, dict):
        raise InputError(f"{where}: not an object")
    label = str(entry.get("label", ""))
    if isinstance(entry.get("messages"), list) and entry["messages"]:
        return Prompt(number, label, {"messages": entry["messages"]})
    prompt = entry.get("prompt", entry.get("text"))
    if not isinstance(prompt, str | list) or not prompt:
        raise InputError(f"{where}: needs `prompt`, `text` or `messages`")
    return Prompt(number, label, {"prompt": prompt})


def _spread(prompts: Sequence[Prompt], most: int | None) -> list[Prompt]:
    if most is None or most >= len(prompts):
        return list(prompts)
    return [prompts[index * len(prompts) // most] for index in range(most)]
