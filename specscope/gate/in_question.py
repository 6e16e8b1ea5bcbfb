"""Tables that ran as arms and may still turn out to be the best.

A draft length that surely gains answers whether to speculate. It does not answer whether a table
is better than every single draft length, which is why the table ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specscope.evaluate.experiment.blocks import IN_FORCE, arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.verdict import Verdict

EFFECT = Rules().smallest_effect


def tables_in_question(verdict: Verdict, arms: Iterable[str]) -> dict[str, Estimate | None]:
    """Of the arms named, the tables that look better than every arm they met, but not surely.

    A table that surely differs from one of them by less than 2 % is not worth its cells, so nothing
    is open. The value is the contrast with the arm that the table beats least; None if it met no
    arm in a pair yet.
    """
    tables = [arm for arm in arms if arm_k(arm) is None and arm != IN_FORCE]
    met = {table: _contrasts(verdict, table) for table in tables}
    return {
        table: min(contrasts, key=lambda one: one.value, default=None)
        for table, contrasts in met.items()
        if all(one.value > 1.0 and not one.within(EFFECT) for one in contrasts)
        and not (contrasts and all(one.wins for one in contrasts))
    }


def open_line(table: str, contrast: Estimate | None) -> str:
    """A table in question, in a line."""
    if contrast is None:
        return f"{table} may still be better: it met no other arm in a pair yet"
    interval = "" if contrast.low is None else f", {contrast.low:.3f} to {contrast.high:.3f}"
    return (
        f"{table} may still be better than {contrast.baseline} "
        f"({contrast.value:.3f}{interval}; {contrast.pairs} pairs)"
    )


def _contrasts(verdict: Verdict, table: str) -> Sequence[Estimate]:
    """The table over each arm that it met."""
    every = (*verdict.speedups, *verdict.between)
    ahead = {one.baseline: one for one in every if one.arm == table}
    behind = {one.arm: one.reversed() for one in every if one.baseline == table}
    return list({**behind, **ahead}.values())
