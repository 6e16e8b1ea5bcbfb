"""The windows of one vLLM engine, from its lines in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

from specscope.readers.logs.vllm_run import FINE, TOGETHER, Run
from specscope.readers.logs.vllm_spec_line import EngineLine, SpecLine
from specscope.readers.logs.vllm_v0 import V0Counters
from specscope.readers.records import Finding, Record, Window

_STATE_NOT_WINDOW = Finding(
    "STATE_NOT_WINDOW",
    "0 running at print time after a window that generated tokens: stored as unknown",
)
_TORN_LINE = Finding("TORN_LINE", "a speculation line is cut at the end of the input")
_DRAFTS_ESTIMATED = Finding("DRAFTS_ESTIMATED", "drafts follow from a rounded mean length only")
_NO_SPECULATION_SEEN = Finding("NO_SPECULATION_SEEN", "an interval without a speculation line")

LONGEST_INTERVAL_S = 3600
PAIR_S = 2
"""The two lines of a window are printed together; the second may begin the next second."""

SLACK = 1.5
"""A gap up to this many usual intervals is one interval; beyond, lines were left out (idle)."""


class Series:
    """One engine of one process: pair its lines, and track its usual interval and last k."""

    def __init__(self, input: str, index: int | None, engine: str = "vllm") -> None:
        self._input, self._index, self._engine = input, index, engine
        self.drafted = False
        self._k: int | None = None
        self._open: dict[str, Any] | None = None
        """Fields of the window whose lines are being read."""
        self._open_at: int | None = None
        self._at: int | None = None
        self._gap: int | None = None
        self._gaps: Counter[int] = Counter()
        self._usual: int | None = None
        self._tok_s: float | None = None
        self._steps, self._steps_ms = 0, 0.0
        self._given = 0
        self._run = Run()
        self._v0 = V0Counters()

    def engine(self, line: EngineLine, start: str | None, at: int | None) -> list[Record]:
        """An engine line: closes the window before it and opens its own."""
        gap = at - self._at if at is not None and self._at is not None else None
        if gap is not None and 0 < gap <= LONGEST_INTERVAL_S:
            self._gaps[gap] += 1
            if gap != self._usual:
                self._usual = self._gaps.most_common(1)[0][0]
        waiting = self._waiting_for(at)
        records = [] if waiting else self._close()
        self._gap, self._at = gap, at if at is not None else self._at
        running = line.running
        if running == 0 and line.tok_s:
            running = None
            records.append(_STATE_NOT_WINDOW)
        self._tok_s = line.tok_s
        self._open, self._open_at = waiting or {"start": start}, at
        self._open["running"] = running
        self._open["waiting"] = line.waiting
        self._open["throughput_tok_s"] = line.tok_s
        if self._steps:
            self._open["round_ms"] = self._steps_ms / self._steps
            self._steps, self._steps_ms = 0, 0.0
        return records

    def spec(self, line: SpecLine, start: str | None, at: int | None) -> list[Record]:
        """A speculation line: complete the open window, or create a new one."""
        if line.emitted is not None:
            return self._spec_v0(line, start, at)
        records: list[Record] = []
        self.drafted = True
        if line.positions and not line.torn:
            self._k = len(line.positions)
        # Without its list of positions a line does not say k, and k may have changed since.
        k = self._k if line.positions or line.torn else None
        if line.torn:
            records.append(_TORN_LINE)
            if k is not None and line.proposed is not None and line.proposed % k:
                k = None
        drafts, guessed = line.drafts(k)
        positions = line.positions
        if positions and k and len(positions) < k:
            positions += (None,) * (k - len(positions))
        if guessed:
            records.append(_DRAFTS_ESTIMATED)
        if self._open is not None and ("proposed" in self._open or self._apart(at)):
            records += self._close()
        window = self._open if self._open is not None else {}
        window["start"] = start or window.get("start")
        window["seconds"] = line.seconds()
        window["k"] = k
        window["drafts"] = drafts
        window["proposed"] = line.proposed
        window["accepted"] = line.accepted
        window["printed_positions"] = positions
        window["printed_rate"] = line.rate
        window["printed_length"] = line.mean
        if guessed:
            window["estimated"] = ("drafts",)
        self._open, self._open_at = window, at
        return records

    def orphan(self, at: int | None) -> dict[str, Any] | None:
        """Return a speculation line that precedes the engine line of its time, if there is one."""
        window = self._waiting_for(at)
        if window is not None:
            self._open = None
        return window

    def adopt(self, window: dict[str, Any], at: int | None) -> list[Record]:
        """Add a speculation line that precedes its engine line."""
        records = self._close()
        self._open, self._open_at, self.drafted = window, at, True
        self._k = window.get("k") or self._k
        return records

    def _waiting_for(self, at: int | None) -> dict[str, Any] | None:
        """The open window, if it only lacks the engine line of this time."""
        window = self._open
        if window is None or at is None or self._open_at is None:
            return None
        return None if "throughput_tok_s" in window or self._apart(at) else window

    def _apart(self, at: int | None) -> bool:
        """Whether a line is too far from the open window's time to be of its pair."""
        return at is not None and self._open_at is not None and abs(at - self._open_at) > PAIR_S

    def iteration(self, context: int, requests: int, elapsed_ms: float) -> None:
        """A line per step: pure decode steps give the time of a round."""
        if context == 0 and requests:
            self._steps += 1
            self._steps_ms += elapsed_ms

    def finish(self) -> list[Record]:
        """The last open windows. After a final engine line, the speculation line may be missing."""
        window = self._open
        cut = window is not None and self.drafted and "proposed" not in window
        # The first token of a request needs no draft; more tokens than requests came out of rounds.
        came = (self._tok_s or 0.0) * (self._interval(None) or 0.0)
        if window is not None and cut and came > (window.get("running") or 0):
            self._tok_s = None
        else:
            cut = False
        return [*self._close(cut), *self._flush()]

    def _close(self, cut: bool = False) -> list[Record]:
        window, self._open = self._open, None
        if window is None:
            return []
        records: list[Record] = []
        spec_seconds = window.get("seconds")
        interval = self._interval(spec_seconds)
        if self._tok_s is not None and interval:
            window["generated"] = self._tok_s * interval
        self._tok_s = None
        if "proposed" not in window and self.drafted and not cut:
            window |= {"drafts": 0, "proposed": 0, "accepted": 0}
            records.append(_NO_SPECULATION_SEEN)
        if spec_seconds is None:
            window["seconds"] = interval
        elif interval and spec_seconds > SLACK * interval:
            records.append(
                Finding(
                    "IDLE_WINDOW",
                    f"a speculation line covers {spec_seconds:.0f} s, most of them idle",
                    {"seconds": round(spec_seconds, 1), "interval_s": interval},
                )
            )
        if self._given >= FINE and self._run.takes(window):
            self._run.add(window)
            return [*records, *self._flush()] if self._run.count >= TOGETHER else records
        self._given += 1
        return [*records, *self._flush(), self._window(window)]

    def _flush(self) -> list[Record]:
        return [self._window(self._run.window())] if self._run.count else []

    def _window(self, fields: dict[str, Any]) -> Window:
        return Window(self._input, self._engine, engine_index=self._index, **fields)

    def _interval(self, spec_seconds: float | None) -> float | None:
        """Seconds that the engine line covers: a usual gap, or the first one since the start."""
        usual = self._usual
        if usual is None:
            return None
        if self._gap is not None and 0 < self._gap <= SLACK * usual:
            return float(self._gap)
        if self._gap is None and spec_seconds and usual <= spec_seconds <= SLACK * usual:
            return spec_seconds
        return float(usual)

    def _spec_v0(self, line: SpecLine, start: str | None, at: int | None) -> list[Record]:
        """Counters since the engine's start: a window at once, with the load of its engine line."""
        fields, findings = self._v0.window(line, at, self._tok_s)
        if fields is None:
            return list(findings)
        self.drafted = True
        window = self._open or {}
        window |= {"start": start or window.get("start"), **fields}
        self._open, self._tok_s = None, None
        return [*findings, self._window(window)]
