"""A replica's figures as a few lines of text, at most 80 columns where names allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specscope.top.figures import Figures
from specscope.top.watch import Replica

QUIET_S = 2.0  # longer than any round; then the figures are of the past
MOST_CLASSES = 8


def lines(replicas: Iterable[Replica]) -> Iterator[str]:
    """All replicas, an empty line between two."""
    for number, one in enumerate(replicas):
        if number:
            yield ""
        yield from _replica(one)


def _replica(one: Replica) -> Iterator[str]:
    state = f"{one.state}: {one.fault}" if one.fault else one.state
    yield f"{one.replica}  {one.engine}  {one.target}  [{state}]"
    if one.figures is None:
        yield "  no round yet"
    else:
        yield from _figures(one.figures, one.quiet_s or 0.0)
    if one.dropped:
        yield f"  lost      {one.dropped} records that a full ring refused: is the sidecar running?"


def _figures(f: Figures, quiet_s: float) -> Iterator[str]:
    if quiet_s > QUIET_S:
        yield f"  quiet     for {quiet_s:.0f} s; before that:"
    yield (
        f"  rounds    {f.rounds_per_s:.1f}/s, {f.tokens_per_s:.0f} tokens/s, "
        f"p95 {f.round_p95_ms:.2f} ms  ({f.rounds} in {f.seconds:.1f} s)"
    )
    mix = ", ".join(f"{k} ({share:.0%})" if len(f.k) > 1 else f"{k}" for k, share in f.k.items())
    yield f"  batch     {f.batch:.1f}, {f.waiting} waiting; k {mix or 'none'}"
    policy = "none" if f.policy is None else str(f.policy)
    yield f"  policy    {policy}, arm {f.arm or 'none (no experiment)'}"
    if f.tokens_per_round is not None:
        yield f"  tokens    {f.tokens_per_round:.2f} a round"
    if f.survival:
        yield "  survival  " + "  ".join(f"{share:.2f}" for share in f.survival)
    yield "  time      " + ", ".join(
        f"{part} {'unknown' if share is None else f'{share:.0%}'}"
        for part, share in f.shares.items()
    )
    named = list(f.by_class.items())
    shown = ", ".join(f"{name} {tokens:.2f}" for name, tokens in named[:MOST_CLASSES])
    more = f" and {len(named) - MOST_CLASSES} more" if len(named) > MOST_CLASSES else ""
    if named:
        yield f"  classes   {shown}{more}  (tokens a round)"
