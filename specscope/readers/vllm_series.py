"""The windows of one vLLM engine, from its lines in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from specscope.readers.lines import number, whole
from specscope.readers.records import Finding, Record, Window
from specscope.readers.vllm_spec_line import SpecLine

LONGEST_INTERVAL_S = 3600
LONGEST_BUSY_S = 60
"""V0 prints every 5 s; lines further apart have idle time between them."""

SLACK = 1.5
"""A gap up to this many usual intervals is one interval; beyond, lines were left out (idle)."""


class Series:
    """One engine of one process: pairs its lines, knows its usual interval and its last k."""

    def __init__(self, input: str, index: int | None) -> None:
        self._input, self._index = input, index
        self.drafted = False
        self._k: int | None = None
        self._pending: Window | None = None
        self._at: int | None = None
        self._gap: int | None = None
        self._gaps: Counter[int] = Counter()
        self._tok_s: float | None = None
        self._steps = [0, 0.0, 0, 0]
        self._v0: dict[int | None, tuple[int, SpecLine]] = {}

    def engine(
        self, found: dict[str, list[str]], start: str | None, at: int | None, torn: bool
    ) -> Iterator[Record]:
        """An engine line: closes the window before it and opens its own."""
        gap = at - self._at if at is not None and self._at is not None else None
        if gap is not None and 0 < gap <= LONGEST_INTERVAL_S:
            self._gaps[gap] += 1
        yield from self._close()
        self._gap, self._at = gap, at if at is not None else self._at
        tok_s = number(_value(found, "avg generation throughput"))
        running = whole(_value(found, "running"))
        if running == 0 and tok_s:
            running = None
            yield Finding(
                "STATE_NOT_WINDOW",
                "0 running at print time after a window that generated tokens: stored as unknown",
            )
        self._tok_s = None if torn else tok_s
        self._pending = Window(
            self._input,
            "vllm",
            start=start,
            engine_index=self._index,
            running=running,
            waiting=whole(_value(found, "waiting") or _value(found, "pending")),
            throughput_tok_s=self._tok_s,
            round_ms=self._round_ms(),
        )

    def spec(self, line: SpecLine, start: str | None, at: int | None) -> Iterator[Record]:
        """A speculation line: fills the open window, or makes one of its own."""
        if line.emitted is not None:
            yield from self._spec_v0(line, start, at)
            return
        self.drafted = True
        if line.positions and not line.torn:
            self._k = len(line.positions)
        k = self._k
        if line.torn:
            yield Finding("TORN_LINE", "a speculation line is cut at the end of the input")
            if k is None or (line.proposed is not None and line.proposed % k):
                k = None
        drafts, guessed = line.drafts(k)
        positions = line.positions
        if positions and k and len(positions) < k:
            positions += (None,) * (k - len(positions))
        if guessed:
            yield Finding("DRAFTS_ESTIMATED", "drafts follow from a rounded mean length only")
        window = self._pending or Window(self._input, "vllm", engine_index=self._index)
        if window.proposed is not None:
            yield from self._close()
            window = Window(self._input, "vllm", engine_index=self._index)
        self._pending = replace(
            window,
            start=start or window.start,
            seconds=line.seconds(),
            k=k,
            drafts=drafts,
            proposed=line.proposed,
            accepted=line.accepted,
            position_rates=positions,
            acceptance_rate=line.rate,
            mean_length=line.mean,
            estimated=("drafts",) if guessed else (),
        )

    def iteration(self, context: int, requests: int, tokens: int, elapsed_ms: float) -> None:
        """A line per step: pure decode steps give the time of a round."""
        if context == 0 and requests:
            self._steps[0] += 1
            self._steps[1] += elapsed_ms
            self._steps[2] += requests
            self._steps[3] += tokens

    def finish(self) -> Iterator[Record]:
        """The last open window."""
        yield from self._close()

    def _round_ms(self) -> float | None:
        steps, elapsed = self._steps[0], self._steps[1]
        self._steps = [0, 0.0, 0, 0]
        return elapsed / steps if steps else None

    def _close(self) -> Iterator[Record]:
        window, self._pending = self._pending, None
        if window is None:
            return
        interval = self._interval(window.seconds)
        generated = self._tok_s * interval if self._tok_s is not None and interval else None
        self._tok_s = None
        if window.proposed is None and window.acceptance_rate is None and self.drafted:
            window = replace(window, drafts=0, proposed=0, accepted=0)
            yield Finding("NO_SPECULATION_SEEN", "an interval without a speculation line")
        seconds = window.seconds if window.seconds is not None else interval
        if interval and window.seconds and window.seconds > SLACK * interval:
            yield Finding(
                "IDLE_WINDOW",
                f"a speculation line covers {window.seconds:.0f} s, most of them idle",
                {"seconds": round(window.seconds, 1), "interval_s": interval},
            )
        yield replace(window, seconds=seconds, generated=generated)

    def _interval(self, spec_seconds: float | None) -> float | None:
        """Seconds that the engine line covers: a usual gap, or the first one since the start."""
        if not self._gaps:
            return None
        usual = self._gaps.most_common(1)[0][0]
        if self._gap is not None and 0 < self._gap <= SLACK * usual:
            return float(self._gap)
        if self._gap is None and spec_seconds and usual <= spec_seconds <= SLACK * usual:
            return spec_seconds
        return float(usual)

    def _spec_v0(self, line: SpecLine, start: str | None, at: int | None) -> Iterator[Record]:
        """Counters since the engine's start, turned into a window and into prefix counts."""
        yield Finding("V0_CUMULATIVE", "counters since the engine's start; windows are differences")
        key = line.k
        time = at if at is not None else -1
        before_at, before = self._v0.get(key, (-1, None))
        now = (line.proposed or 0, line.accepted or 0, line.emitted or 0)
        then = (
            (before.proposed or 0, before.accepted or 0, before.emitted or 0)
            if before
            else (0,) * 3
        )
        if any(a < b for a, b in zip(now, then, strict=True)):
            if 0 <= time < before_at:
                yield Finding("OUT_OF_ORDER", "an older line follows a newer one; it is within it")
                return
            yield Finding("COUNTER_RESET", "a counter fell: another start of the engine")
            before, then = None, (0, 0, 0)
        self._v0[key] = (time, line)
        proposed, matched, emitted = (a - b for a, b in zip(now, then, strict=True))
        rounds = proposed // line.k if line.k and proposed % line.k == 0 else None
        accepted = emitted - rounds if rounds is not None else None
        self.drafted = True
        yield Finding(
            "V0_ACCEPTANCE_NOT_PREFIX",
            "printed acceptance counts matches behind the first mismatch",
            {
                "printed_rate": round(matched / proposed, 4) if proposed else None,
                "prefix_rate": round(accepted / proposed, 4)
                if proposed and accepted is not None
                else None,
                "rounds_since_start": now[0] // line.k if line.k else None,
                "efficiency": round(emitted / (rounds * (line.k + 1)), 3)
                if rounds and line.k
                else None,
            },
        )
        seconds = float(time - before_at) if before and time > before_at >= 0 else None
        if self._tok_s and seconds and emitted / seconds > 1.1 * self._tok_s:
            yield Finding(
                "V0_THROUGHPUT_UNDERCOUNT",
                f"{emitted} tokens in {seconds:.0f} s are {emitted / seconds:.0f} tok/s; the line "
                f"prints {self._tok_s:g}",
                {"emitted_tok_s": round(emitted / seconds, 1), "printed_tok_s": self._tok_s},
            )
        window = self._pending or Window(self._input, "vllm", engine_index=self._index)
        self._gap = None
        self._pending = replace(
            window,
            start=start or window.start,
            seconds=seconds,
            k=line.k,
            drafts=rounds,
            proposed=proposed,
            accepted=accepted,
            emitted=emitted,
            throughput_tok_s=None,
        )
        yield from self._close_v0(seconds)

    def _close_v0(self, seconds: float | None) -> Iterator[Record]:
        window, self._pending = self._pending, None
        if window is not None:
            busy = seconds is not None and seconds <= LONGEST_BUSY_S
            rate = window.emitted / seconds if busy and window.emitted and seconds else None
            yield replace(window, throughput_tok_s=rate)


def _value(found: dict[str, list[str]], name: str) -> str | None:
    values = found.get(name)
    return values[0] if values else None
