"""A llama.cpp server, followed by its log.

The server runs with `LLAMA_TRACE=1` and `-lv 4`. Each request gets its own row and one part with
its drafting rounds. There are no rows of `round`: a round without a draft has no line, and the log
does not say which rounds of several slots ran together.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from specscope_agent.source import Source
from specscope_agent.sources import llamacpp_lines as lines
from specscope_agent.sources.interface import Harvest, Lost, Row
from specscope_agent.sources.llamacpp_request import LONGEST_DRAFT, Request, rows_of
from specscope_agent.sources.log_file import CHUNK_BYTES, LogFile, last_start
from specscope_hook.boot import new_boot
from specscope_hook.layout import FIRST_SEQ
from specscope_hook.ring import Cursor
from specscope_hook.settings import HookSettings

log = logging.getLogger("specscope.agent")

LEAST_VERBOSITY = 4
MOST_REQUESTS = 4096  # open at once; beyond, the oldest is given up and counted
BATCH_EVENTS = 2000

_METHODS = {"draft-simple": "draft_model", "draft-eagle3": "eagle", "draft-mtp": "mtp"}
_MARKS = (b"eval time", b"draft acceptance", b"draft tokens", b"print_timing", b"stop processing")
"""A line with one of these that no pattern knows is counted as unread."""


@dataclass(slots=True)
class Facts:
    """Facts about the server that the log has before its first request."""

    verbosity: int | None = None
    build: str = "unknown"
    model: str | None = None
    draft: str | None = None
    drafters: list[str] = field(default_factory=list)
    longest: int | None = None
    slots: int | None = None

    def missing(self) -> str:
        """The reason for missing requests; empty for none."""
        if self.verbosity is None or self.model is None:
            return "the server's start is not in the log"
        if self.verbosity < LEAST_VERBOSITY:
            return f"the server was started without -lv {LEAST_VERBOSITY}"
        if self.drafters and self.longest is None:
            return "the log does not say how long a draft may be"
        return ""

    def boot(self, source: Source, started_at: int) -> Row:
        methods = [_METHODS.get(each, each.split("-")[0]) for each in self.drafters]
        settings = HookSettings(rings=None, replica=source.replica)
        configuration = {"drafters": self.drafters, "draft": self.draft, "k_max": self.longest}
        boot = new_boot(
            settings,
            boot=source.boot,
            started_at=started_at,
            engine="llama.cpp",
            engine_version=self.build,
            target=Path(self.model or "unknown").name,
            draft=Path(self.draft).name if self.draft else None,
            method="+".join(dict.fromkeys(methods)) or "none",
            k_max=min(self.longest or 0, LONGEST_DRAFT),
            largest_batch=self.slots,
            configuration=configuration,
            layout_hash=None,
        )
        return asdict(boot)


def _clock_us(stamped: re.Match[str]) -> int:
    minutes, seconds, ms, us = (int(each) for each in stamped.groups()[:4])
    return ((minutes * 60 + seconds) * 1000 + ms) * 1000 + us


def _stamp(raw: bytes) -> re.Match[str] | None:
    return lines.STAMPED.match(raw.decode("utf-8", "replace"))


def _is_start(stamped: re.Match[str] | None) -> bool:
    """Whether a line is the first line of a server."""
    return stamped is not None and lines.STARTS in stamped.group(5)


@dataclass(slots=True)
class _Event:
    """An event to store, and the cursor after it."""

    position: int
    next_seq: int
    rows: Mapping[str, Row]
    lost: Lost | None = None
    ended: bool = False


class LlamaCpp:
    """One server's log; see the module."""

    def __init__(self, path: Path, replica: str) -> None:
        self.name = f"llama.cpp {path}"
        self.replica = replica
        self._log = LogFile(path)
        self._found = False  # the last start in the file
        self._anew = 0
        self._said: set[str] = set()
        self._lines: deque[tuple[int, bytes]] = deque()
        self._next: tuple[int, Facts] | None = None  # start to follow once this one is given
        self._given = 0
        self._cursor_of: Callable[[Source], Cursor] = lambda _: Cursor()
        self._begin(0, Facts())

    def _begin(self, offset: int, facts: Facts) -> None:
        """Follow another start of the server, whose first line begins at an offset."""
        self._facts = facts
        self._digest = hashlib.blake2b(f"{self._log.identity} {offset}".encode(), digest_size=8)
        self.current: Source | None = None
        self._resumed = 0  # bytes of which the spool had everything when this reader came
        self._events: list[_Event] = []
        self._requests: dict[str, Request] = {}
        self._sampler = math.nan, math.nan
        self._seq = FIRST_SEQ
        self._at = offset  # behind the last line
        self._now_us = 0
        self._zero_ns: int | None = None  # the server's clock, ns since 1970

    # --- the interface -------------------------------------------------------------------

    @property
    def missing(self) -> str:
        return self._facts.missing()

    def poll(self, cursor_of: Callable[[Source], Cursor]) -> Harvest | None:
        self._cursor_of = cursor_of
        if not self._found and not self._find():
            return None
        while True:
            if self._events and self.current and (self._next or not self._lines):
                return self._harvest(self.current)
            if self._next:
                self._begin(*self._next)
                self._next = None
            if not self._lines and not self._fetch():
                return None
            if not self._next:
                self._consume()

    def kept(self) -> None:
        del self._events[: self._given]
        self._given = 0

    def close(self) -> None:
        self._log.close()

    def _find(self) -> bool:
        """Go to the last start in the file and ignore earlier ones."""
        if not self._log.chunk():
            return False
        self._log.rewind(0)
        start = last_start(self._log, self._looks)
        now_us = self._now_us
        self._begin(start, Facts())
        self._zero_ns = self._log.written_at() - now_us * 1000
        self._log.rewind(start)
        self._found = True
        return True

    def _looks(self, raw: bytes) -> bool:
        """Whether a line is a server's first; notes its clock."""
        stamped = _stamp(raw)
        if stamped:
            self._now_us = _clock_us(stamped)
        return _is_start(stamped)

    def _fetch(self) -> bool:
        """Read on; False if nothing is new."""
        chunk = self._log.chunk()
        self._lines.extend(chunk)
        if self._log.anew != self._anew:
            self._anew = self._log.anew
            # A file that was cut under a living server goes on with the same server.
            self._leave(0, self._facts if self._log.cut else Facts())
            return True
        return bool(chunk)

    def _consume(self) -> None:
        """Process lines up to the first line of another start."""
        before, size = self._now_us, sum(len(raw) + 1 for _, raw in self._lines)
        while self._lines:
            at, raw = self._lines[0]
            if self._now_us and lines.STARTS.encode() in raw and _is_start(_stamp(raw)):
                self._leave(at - len(raw) - 1, Facts())
                return
            self._lines.popleft()
            self._at = at
            self._line(at, raw)
        if self._now_us > before:
            self._set_clock(at_end=size < CHUNK_BYTES)

    def _leave(self, offset: int, facts: Facts) -> None:
        """Switch to another start after all events of this one were returned."""
        for _ in self._requests:
            self._lose("request", "the log ends before the request does", self._at)
        self._requests.clear()
        if self._zero_ns is None and self._now_us:
            self._set_clock(at_end=False)
        self._next = offset, facts

    def _harvest(self, source: Source) -> Harvest:
        events = self._events[:BATCH_EVENTS]
        self._given = len(events)
        zero = self._zero_ns or 0
        rows: dict[str, list[Row]] = {}
        losses: dict[tuple[str, str], Lost] = {}
        for event in events:
            for table, row in event.rows.items():
                times = {name: row[name] + zero for name in row if name.endswith("_at")}
                rows.setdefault(table, []).append({**row, **times, **source._asdict()})
            if event.lost:
                key = event.lost.table, event.lost.detail
                before = losses.get(key)
                count = event.lost.count + (before.count if before else 0)
                losses[key] = replace(before or event.lost, count=count)
        return Harvest(
            source=source,
            boot=None if self._facts.missing() else self._facts.boot(source, zero),
            cursor=Cursor(events[-1].position, events[-1].next_seq),
            rows=rows,
            losses=list(losses.values()),
            ended=any(event.ended for event in events),
        )

    def _set_clock(self, *, at_end: bool) -> None:
        """Set the clock from the file's last write, which follows its last line closely."""
        zero = self._log.written_at() - self._now_us * 1000
        if self._zero_ns is None or (at_end and zero < self._zero_ns):
            self._zero_ns = zero

    # --- lines ---------------------------------------------------------------------------

    def _line(self, at: int, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").rstrip("\r")
        if text.startswith("\ttop_k = "):
            if sampler := lines.SAMPLER.match(text):
                self._sampler = float(sampler.group(2)), float(sampler.group(1))
            return
        stamped = lines.STAMPED.match(text)
        if stamped is None:
            if any(mark in raw for mark in _MARKS):
                self._unread(at, text)
            return
        now, body = _clock_us(stamped), stamped.group(5)
        self._now_us = max(now, self._now_us)
        if self.current is None:
            self._digest.update(raw)
        if body.startswith("slot "):
            self._slot(at, now, body, raw)
        elif cancelled := lines.CANCELLED.match(body):
            if request := self._requests.get(cancelled.group(1)):
                request.end = "abort"
        elif lines.ENDS in body and not self._requests:
            self._add(_Event(at, self._seq, {}, ended=True))
        else:
            self._fact(body)

    def _fact(self, body: str) -> None:
        facts = self._facts
        if found := lines.VERBOSITY.match(body):
            facts.verbosity = int(found.group(1))
        elif found := lines.BUILD.match(body):
            facts.build = found.group(1)
        elif found := lines.MODEL.match(body):
            facts.model = found.group(1)
        elif found := lines.DRAFT_MODEL.match(body):
            facts.draft = found.group(1)
        elif found := lines.DRAFTER.match(body):
            facts.drafters.append(found.group(1))
        elif found := lines.LONGEST.match(body):
            facts.longest = max(int(found.group(1)), facts.longest or 0)
        elif found := lines.SLOTS.match(body):
            facts.slots = int(found.group(1))

    def _slot(self, at: int, now: int, body: str, raw: bytes) -> None:
        found = lines.SLOT.match(body)
        if found is None:
            if any(mark in raw for mark in _MARKS):
                self._unread(at, body)
            return
        task, said = found.group(2), found.group(3)
        if said.startswith("processing task"):
            if len(self._requests) >= MOST_REQUESTS:
                del self._requests[next(iter(self._requests))]
                self._lose("request", "more requests are open than a server runs", at)
            temperature, top_p = self._sampler
            self._requests[task] = Request(task, now, temperature, top_p)
            return
        request = self._requests.get(task)
        if said.startswith("stop processing"):
            self._requests.pop(task, None)
            self._end(at, now, request)
        elif request is None:
            return  # it began before this log did; its end is counted
        elif not request.read(found.group(1), said) and any(mark in raw for mark in _MARKS):
            self._unread(at, body)

    def _end(self, at: int, now: int, request: Request | None) -> None:
        missing = self._facts.missing()
        if request is None:
            missing = missing or "the request's beginning is not in the log"
        elif request.prompt_tokens is None:
            missing = missing or "the log does not say how long the prompt is"
        if missing or request is None:
            self._complain(missing, f"{missing}: its requests are counted as lost")
            self._lose("request", missing, at)
            return
        rows, lost = rows_of(request, self._settle().boot, now, self._seq)
        self._seq += 1
        if lost:
            self._complain(lost, f"{lost}: the rounds of such requests are counted as lost")
        self._add(_Event(at, self._seq, rows, Lost("request_part", 1, lost) if lost else None))

    def _unread(self, at: int, text: str) -> None:
        detail = "a line that no pattern knows"
        self._complain(detail, f"{detail}, counted as unread: {text[:120]!r}")
        self._lose("log", detail, at)

    def _lose(self, table: str, detail: str, at: int) -> None:
        number = self._seq if table == "request" else None
        self._seq += table == "request"
        self._add(_Event(at, self._seq, {}, Lost(table, 1, detail, number)))

    def _settle(self) -> Source:
        """Set the name of this start, which depends on its log up to the first event."""
        if self.current is None:
            self.current = Source(self.replica, self._digest.hexdigest())
            self._resumed = self._cursor_of(self.current).position
        return self.current

    def _add(self, event: _Event) -> None:
        self._settle()
        if event.position <= self._resumed:
            return
        before = self._events[-1] if self._events else None
        last = before.lost if before and not (before.rows or event.rows) else None
        lost = event.lost
        if last and lost and (last.table, last.detail) == (lost.table, lost.detail):
            # A flood of the same takes no memory.
            event.lost = replace(last, count=last.count + lost.count)
            self._events[-1] = event
        else:
            self._events.append(event)

    def _complain(self, kind: str, sentence: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            log.warning("%s: %s", self.name, sentence)
