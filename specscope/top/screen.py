"""Replicas as lines of text with a style, at most 80 columns if names allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from specscope.top.experiment import RunningExperiment
from specscope.top.figures import Figures
from specscope.top.gpus import GpuNow
from specscope.top.watch import Replica

QUIET_S = 2.0  # longer than any round; then the figures are of the past
MOST_CLASSES = 8
NAME_COLUMNS = 24  # of a replica's name in the table of many


class Style(StrEnum):
    """Style of a line on a colour terminal: its SGR code."""

    PLAIN = ""
    GOOD = "1;32"
    BAD = "1;31"
    WARNING = "33"
    NEWS = "36"
    FAINT = "2"


class ScreenLine(NamedTuple):
    """A line and its style."""

    text: str
    style: Style = Style.PLAIN


def lines(replicas: Iterable[Replica]) -> Iterator[str]:
    """All replicas as plain text, an empty line between two."""
    return (line.text for line in styled(replicas))


def styled(replicas: Iterable[Replica]) -> Iterator[ScreenLine]:
    """All replicas as lines with a style each."""
    for number, one in enumerate(replicas):
        if number:
            yield ScreenLine("")
        yield from _replica(one)


def fitting(replicas: Sequence[Replica], height: int) -> list[ScreenLine]:
    """Full text of every replica if it fits into `height` lines, else one line per replica."""
    whole = list(styled(replicas))
    return whole if len(whole) <= height or len(replicas) < 2 else list(_table(replicas, height))


def painted(line: ScreenLine) -> str:
    """A line with its colour, for a terminal."""
    return f"\x1b[{line.style}m{line.text}\x1b[0m" if line.style and line.text else line.text


def _table(replicas: Sequence[Replica], height: int) -> Iterator[ScreenLine]:
    yield ScreenLine(
        f"{'replica':{NAME_COLUMNS}} {'tokens/s':>9} {'rounds/s':>8} {'batch':>6} {'wait':>5} "
        f"{'t/round':>7} {'lost':>6} arm",
        Style.FAINT,
    )
    shown = replicas[: max(1, height - 2)]
    for one in shown:
        yield ScreenLine(_row(one), _state(one))
    if len(shown) < len(replicas):
        yield ScreenLine(
            f"and {len(replicas) - len(shown)} more: --replica NAME shows one", Style.FAINT
        )


def _row(one: Replica) -> str:
    name = (
        one.replica if len(one.replica) <= NAME_COLUMNS else f"{one.replica[: NAME_COLUMNS - 1]}…"
    )
    f = one.figures
    if f is None:
        return f"{name:{NAME_COLUMNS}} {one.state}, no round yet"
    tokens = "–" if f.tokens_per_round is None else f"{f.tokens_per_round:.2f}"
    arm = f.arm or "–"
    state = "" if one.state == "serving" else f" {one.state}"
    return (
        f"{name:{NAME_COLUMNS}} {f.tokens_per_s:9.0f} {f.rounds_per_s:8.1f} {f.batch:6.1f} "
        f"{f.waiting:5d} {tokens:>7} {one.dropped:6d} {arm}{state}"
    )


def _state(one: Replica) -> Style:
    if one.state in ("detached", "gone"):
        return Style.BAD
    if one.dropped or (one.quiet_s or 0.0) > QUIET_S:
        return Style.WARNING
    return Style.PLAIN


def _replica(one: Replica) -> Iterator[ScreenLine]:
    state = f"{one.state}: {one.fault}" if one.fault else one.state
    header = {"serving": Style.GOOD, "ended": Style.FAINT}.get(one.state, Style.BAD)
    yield ScreenLine(f"{one.replica}  {one.engine}  {one.target}  [{state}]", header)
    if one.figures is None:
        yield ScreenLine("  no round yet", Style.FAINT)
    else:
        yield from _figures(one.figures, one.quiet_s or 0.0)
    if one.experiment:
        yield ScreenLine(_experiment(one.experiment), Style.NEWS)
    for device in one.devices:
        slow = bool(device.slowed or device.reason)
        yield ScreenLine(_device(device), Style.WARNING if slow else Style.PLAIN)
    if one.no_devices:
        yield ScreenLine(f"  gpu       not seen: {one.no_devices}", Style.FAINT)
    if one.dropped:
        text = (
            f"  lost      {one.dropped} records, because the ring was full: is the sidecar running?"
        )
        yield ScreenLine(text, Style.BAD)


def _figures(f: Figures, quiet_s: float) -> Iterator[ScreenLine]:
    if quiet_s > QUIET_S:
        yield ScreenLine(f"  quiet     for {quiet_s:.0f} s; before that:", Style.WARNING)
    yield ScreenLine(
        f"  rounds    {f.rounds_per_s:.1f}/s, {f.tokens_per_s:.0f} tokens/s, "
        f"p95 {f.round_p95_ms:.2f} ms  ({f.rounds} in {f.seconds:.1f} s)"
    )
    mix = ", ".join(f"{k} ({share:.0%})" if len(f.k) > 1 else f"{k}" for k, share in f.k.items())
    yield ScreenLine(f"  batch     {f.batch:.1f}, {f.waiting} waiting; k {mix or 'none'}")
    policy = "none" if f.policy is None else str(f.policy)
    yield ScreenLine(f"  policy    {policy}, arm {f.arm or 'none (no experiment)'}")
    for arm, one in f.by_arm.items():
        text = (
            f"  arm       {arm}: {one.tokens_per_round:.2f} tokens per round, {one.round_ms:.2f} ms"
        )
        yield ScreenLine(text)
    if f.tokens_per_round is not None:
        yield ScreenLine(f"  tokens    {f.tokens_per_round:.2f} per round")
    if f.survival:
        yield ScreenLine("  survival  " + "  ".join(f"{share:.2f}" for share in f.survival))
    yield ScreenLine(
        "  time      "
        + ", ".join(
            f"{part} {'unknown' if share is None else f'{share:.0%}'}"
            for part, share in f.shares.items()
        )
    )
    named = list(f.by_class.items())
    shown = ", ".join(f"{name} {tokens:.2f}" for name, tokens in named[:MOST_CLASSES])
    more = f" and {len(named) - MOST_CLASSES} more" if len(named) > MOST_CLASSES else ""
    if named:
        yield ScreenLine(f"  classes   {shown}{more}  (tokens per round)")


def _experiment(one: RunningExperiment) -> str:
    arms = ", ".join(one.arms)
    if one.begins_s:
        return f"  pairs     policy {one.policy}: arms {arms}, begins in {_span(one.begins_s)}"
    pair = f"pair {one.pair}" + ("" if one.pairs is None else f" of {one.pairs}")
    alone = "" if one.is_arm else ", outside this pair"
    ends = "has no end" if one.left_s is None else f"ends in {_span(one.left_s)}"
    return (
        f"  pairs     {arms}; {pair}{alone}; block ends in {_span(one.block_s)}, experiment {ends}"
    )


def _device(one: GpuNow) -> str:
    if one.reason:
        return f"  gpu       {one.uuid[:12]}: {one.reason}"
    known = [
        f"busy {one.busy:.0%}" if one.busy is not None else "",
        f"memory {one.memory_busy:.0%}" if one.memory_busy is not None else "",
        f"{one.memory_bytes / 1e9:.0f} GB" if one.memory_bytes is not None else "",
        f"{one.power_w:.0f} W" if one.power_w is not None else "",
        f"{one.clock_mhz:.0f} MHz" if one.clock_mhz is not None else "",
        f"slowed by {', '.join(one.slowed)}" if one.slowed else "",
    ]
    return f"  gpu       {one.uuid[:12]}: {', '.join(filter(None, known))}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
