"""Classes for engines without labels: a file of rules over the engine's facts.

    {"default": "unlabelled",
     "rules": [{"class": "sql",   "request_id": "^sql-"},
               {"class": "tools", "guided": true, "temperature": [0, 0.3]},
               {"class": "acme",  "adapter": "^acme-", "extra": {"route": "chat"}}]}

The first rule with all conditions true decides. Without a match, the client's own label decides if
the engine passes it on (`specscope_class` among the request's extra values); otherwise the default.
A request is never dropped. `request_id` is searched in the client's own part of the id and in the
engine's whole id. Texts are regular expressions, searched; ranges are half-open [low, high), with
null for open ends. The file is reloaded within a second of a change; an unreadable file leaves the
rules unchanged.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specscope_hook.clock import Clock, SystemClock
from specscope_hook.errors import SettingsError

log = logging.getLogger("specscope")

UNLABELLED = "unlabelled"
CLASS_FIELD = "specscope_class"
"""Extra value in which a client may name its own class."""
_TEXTS = ("request_id", "adapter", "model")
_RANGES = ("temperature", "top_p", "prompt_tokens", "max_tokens")
_KNOWN = {"class", "guided", "extra", *_TEXTS, *_RANGES}
_LOOK_EVERY_NS = 1_000_000_000
_GONE = (-1, -1)


@dataclass(slots=True)
class Facts:
    """The engine's facts about a request at admission.

    request_id: the engine's id. client_id: the client's part of it, if the engine adds to it.
    """

    request_id: str = ""
    client_id: str = ""
    adapter: str = ""
    model: str = ""
    temperature: float = 1.0
    top_p: float = 1.0
    prompt_tokens: int = 0
    max_tokens: int = 0
    guided: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """A class and its conditions, which must all hold."""

    class_: str
    texts: tuple[tuple[str, re.Pattern[str]], ...]
    ranges: tuple[tuple[str, float, float], ...]
    guided: bool | None
    extra: tuple[tuple[str, Any], ...]

    def matches(self, facts: Facts) -> bool:
        return (
            (self.guided is None or self.guided == facts.guided)
            and all(_finds(pattern, name, facts) for name, pattern in self.texts)
            and all(low <= getattr(facts, name) < high for name, low, high in self.ranges)
            and all(facts.extra.get(name) == value for name, value in self.extra)
        )


def _finds(pattern: re.Pattern[str], name: str, facts: Facts) -> bool:
    if pattern.search(getattr(facts, name)):
        return True
    return name == "request_id" and bool(pattern.search(facts.client_id))


def read_rules(text: str) -> tuple[list[Rule], str]:
    """Parse rules and the default class.

    Raises SettingsError with the fault.
    """
    try:
        raw = json.loads(text)
        rules = [_rule(number, each) for number, each in enumerate(raw["rules"], 1)]
        default = str(raw.get("default", UNLABELLED))
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise SettingsError(f"class rules cannot be read: {error}") from error
    return rules, default


def _rule(number: int, raw: dict[str, Any]) -> Rule:
    if wrong := set(raw) - _KNOWN:
        raise SettingsError(f"class rule {number}: no condition is called {min(wrong)!r}")
    ranges = []
    for name in _RANGES:
        if name in raw:
            low, high = raw[name]
            ranges.append((name, float(low or 0), float("inf") if high is None else float(high)))
    return Rule(
        class_=str(raw["class"]),
        texts=tuple((name, re.compile(raw[name])) for name in _TEXTS if name in raw),
        ranges=tuple(ranges),
        guided=raw.get("guided"),
        extra=tuple(raw.get("extra", {}).items()),
    )


class ClassRules:
    """The rules of a file, reloaded after changes; without a file all requests are unlabelled."""

    def __init__(self, path: Path | None = None, clock: Clock | None = None) -> None:
        self._path = path
        self._now = (clock or SystemClock()).monotonic_ns
        self._look_at = 0
        self._seen: tuple[int, int] | None = None
        self._rules: list[Rule] = []
        self._default = UNLABELLED

    @property
    def none(self) -> bool:
        """Whether there is no file; then `own` equals `label`."""
        return self._path is None

    def own(self, extra: dict[str, Any]) -> str:
        """The client's own class from the request's extra values, else the default."""
        named = extra.get(CLASS_FIELD)
        return named if isinstance(named, str) and named else self._default

    def label(self, facts: Facts) -> str:
        """The class of a request."""
        if self._path is not None and self._now() >= self._look_at:
            self._look(self._path)
        for rule in self._rules:
            if rule.matches(facts):
                return rule.class_
        return self.own(facts.extra)

    def _look(self, path: Path) -> None:
        """Reload the file if it changed; log a failure once per change."""
        self._look_at = self._now() + _LOOK_EVERY_NS
        try:
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            seen = _GONE
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._rules, self._default = read_rules(path.read_text())
        except (OSError, SettingsError) as error:
            log.warning("specscope keeps its class rules: %s", error)
