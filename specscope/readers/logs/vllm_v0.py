"""vLLM V0's speculation counters: sums since the start, turned into windows and prefix counts.

V0's accepted count includes matching draft tokens after the first mismatch. Emitted is the accepted
prefix plus one token per round. So rounds = drafted / k, and the accepted prefix = emitted -
rounds. Source: the maintainers' explanation of the counters in vllm#9565.
"""

from __future__ import annotations

from typing import Any

from specscope.readers.logs.vllm_spec_line import SpecLine
from specscope.readers.records import Finding

LONGEST_BUSY_S = 60
"""V0 prints every 5 s; lines further apart have idle time between them."""


class V0Counters:
    """The counters of one process; engines that a file mixes are told apart by their k."""

    def __init__(self) -> None:
        self._last: dict[int | None, tuple[int, tuple[int, int, int]]] = {}

    def window(
        self, line: SpecLine, at: int | None, printed_tok_s: float | None
    ) -> tuple[dict[str, Any] | None, list[Finding]]:
        """(the fields of the window since the last line, findings).

        None for a line older than the last one, whose counts already include it.
        """
        findings = [
            Finding("V0_CUMULATIVE", "counters since the engine's start; windows are differences")
        ]
        time = at if at is not None else -1
        before_at, then = self._last.get(line.k, (-1, (0, 0, 0)))
        now = (line.proposed or 0, line.accepted or 0, line.emitted or 0)
        if any(a < b for a, b in zip(now, then, strict=True)):
            if 0 <= time < before_at:
                text = "an older line follows a newer one; its counts lie within that one's"
                return None, [*findings, Finding("OUT_OF_ORDER", text)]
            findings.append(Finding("COUNTER_RESET", "a counter fell: another start of the engine"))
            before_at, then = -1, (0, 0, 0)
        self._last[line.k] = (time, now)
        proposed, matched, emitted = (a - b for a, b in zip(now, then, strict=True))
        rounds = proposed // line.k if line.k and proposed % line.k == 0 else None
        accepted = emitted - rounds if rounds is not None else None
        findings.append(_not_prefix(line, rounds, proposed, matched, accepted, emitted))
        seconds = float(time - before_at) if time > before_at >= 0 else None
        busy = seconds if seconds is not None and seconds <= LONGEST_BUSY_S else None
        tok_s = emitted / busy if busy and emitted else None
        if printed_tok_s and tok_s and tok_s > 1.1 * printed_tok_s:
            findings.append(
                Finding(
                    "V0_THROUGHPUT_UNDERCOUNT",
                    f"{emitted} tokens in {busy:.0f} s are {tok_s:.0f} tok/s; the line prints "
                    f"{printed_tok_s:g}",
                    {"emitted_tok_s": round(tok_s, 1), "printed_tok_s": printed_tok_s},
                )
            )
        fields = {
            "seconds": seconds,
            "k": line.k,
            "drafts": rounds,
            "proposed": proposed,
            "accepted": accepted,
            "came_out": emitted,
            "throughput_tok_s": tok_s,
        }
        return fields, findings


def _not_prefix(
    line: SpecLine,
    rounds: int | None,
    proposed: int,
    matched: int,
    accepted: int | None,
    emitted: int,
) -> Finding:
    prefix_rate = accepted / proposed if proposed and accepted is not None else None
    efficiency = emitted / (rounds * (line.k + 1)) if rounds and line.k else None
    return Finding(
        "V0_ACCEPTANCE_NOT_PREFIX",
        "printed acceptance counts matches behind the first mismatch",
        {
            "printed_rate": round(matched / proposed, 4) if proposed else None,
            "prefix_rate": round(prefix_rate, 4) if prefix_rate is not None else None,
            "rounds_since_start": (line.proposed or 0) // line.k if line.k else None,
            "efficiency": round(efficiency, 3) if efficiency is not None else None,
        },
    )
