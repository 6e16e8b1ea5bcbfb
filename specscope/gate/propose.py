"""`specscope gate propose`: propose a table for an experiment on mixed traffic."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from specscope.errors import ExitCode
from specscope.evaluate.proposal.ranking import (
    FEWEST_PAIRS,
    Predicted,
    Proposal,
    largest_error,
    propose,
)
from specscope.evidence.mixed import MixedRounds, read_mixed
from specscope.gate.arms import check_file_name
from specscope.gate.console import open_store, say, write_json
from specscope.gate.rules import GateRules
from specscope.policy.stored import read_policies, table_in_force
from specscope.policy.table import SCHEMA, Cell, GateTable
from specscope.store.connection import Store

FILE = Path("proposed.json")
PACKED, PADDED = 0.25, 0.75  # shares of padding up to which an engine packs, and from which it pads


@dataclass(frozen=True, slots=True)
class ProposedArms:
    """A proposal as an experiment: the table file, and the arms to compare it with.

    worth: whether the modelled gain can reach the gate's threshold for a longer draft.
    """

    epoch: str
    proposal: Proposal
    table: GateTable
    rivals: tuple[str, ...]
    worth: bool

    def arms(self, file: Path) -> tuple[str, ...]:
        """The arms of the deciding experiment, in the syntax of `gate calibrate`."""
        return (*self.rivals, str(file)) if self.worth else self.rivals


def propose_command(args: Namespace) -> int:
    """Rank all tables and write the best one to a file. Unsettled if there is nothing to rank."""
    file = args.out or FILE
    check_file_name(file)
    with open_store(args) as store:
        proposed = look_for_table(
            store, time.time_ns() - args.since, epoch=args.epoch, default_k=args.default_k
        )
    if proposed is None:
        lines = [
            f"no table can be ranked: fewer than {FEWEST_PAIRS} pairs of two arms or more ran with "
            "two classes in a batch while rounds are still stored. Run uniform arms on mixed "
            "traffic first, such as `specscope gate calibrate --arms k0,2,4 --minutes 60`"
        ]
        say(args, lines, {"schema": SCHEMA, "proposal": None})
        return ExitCode.of_answer(False)
    plain = proposal_json(proposed, file)
    if args.out:
        write_json(args.out, plain)
    return say(args, proposal_lines(proposed, file, written=bool(args.out)), plain)


def look_for_table(
    store: Store, since: int, *, epoch: str | None = None, default_k: int | None = None
) -> ProposedArms | None:
    """The best table according to the model, from rounds since a time in ns since 1970.

    epoch: epoch of the rounds (default: the latest). default_k: draft length in force without a
    table. None if no mixed traffic ran two arms. Raises StoreError if the store cannot be read.
    """
    policies = read_policies(store)
    mixed = read_mixed(store, policies, since, epoch)
    in_force = table_in_force(policies, time.time_ns(), default_k)
    return rank(mixed, in_force or GateTable((), 0))


def rank(mixed: MixedRounds, in_force: GateTable) -> ProposedArms | None:
    """The proposal from rounds.

    None if no batch of two classes ran a draft, or if there are too few pairs for an interval.
    """
    if len({row.key for row in mixed.rounds}) < FEWEST_PAIRS:
        return None
    if all(row.k == 0 for row in mixed.rounds):
        return None
    proposal = propose(mixed.rounds, mixed.parts)
    cells = tuple(Cell(k, name) for name, k in proposal.lengths.items() if k != proposal.default_k)
    table = GateTable(cells, proposal.default_k)
    running = "current" if in_force.cells else f"k{in_force.default_k}"
    rivals = tuple(dict.fromkeys(("k0", f"k{proposal.single}", running)))
    reach = proposal.gain.value if proposal.gain.high is None else proposal.gain.high
    worth = bool(cells) and table != in_force and reach > 1.0 + GateRules().up
    return ProposedArms(mixed.epoch, proposal, table, rivals, worth)


def proposal_lines(proposed: ProposedArms, file: Path, *, written: bool) -> list[str]:
    """Lines on the table, its modelled gain, the model's error, and the deciding experiment."""
    one = proposed.proposal
    each = [
        f"    {name}: k = {one.lengths.get(name, one.default_k)} ({share:.0%} of the rows)"
        for name, share in one.shares.items()
    ]
    worst = max(one.measured_off, key=lambda arm: abs(one.measured_off[arm] - 1.0))
    lines = [
        f"best of {one.tables} tables by a model of {one.pairs} pairs, at a batch of "
        f"{one.batch:.0f} (modelled, no verdict):",
        *each,
        f"    classes that were not seen: k = {one.default_k}",
        f"predicted: {_times(one.gain)} of k = {one.single} for all, the best single draft length; "
        f"{_times(one.over_k0)} of target-only",
        f"composition: {composition(one)}",
        f"the model's error is {largest_error(one.measured_off):.1%} on arm {worst}, the largest",
    ]
    if not settled(one) and one.padding is not None:
        lines.append(
            "more pairs would settle it: run the same arms again, including a table of unequal "
            "lengths, and propose again"
        )
    if not proposed.worth:
        lines.append(_not_worth(proposed))
        return [*lines, *_next_step(proposed.arms(file))]
    if not written:
        lines.append(f"write it with `--out {file}`, then run it as an arm:")
    return [*lines, *_next_step(proposed.arms(file))]


def settled(one: Proposal) -> bool:
    """Whether it is known if the engine packs or pads rows of unequal drafts.

    A table with different lengths by class pays only on some engines, depending on this."""
    return _composed(one) is not None


def _composed(one: Proposal) -> Literal["packed", "padded", "partly padded"] | None:
    """packed, padded or partly padded; None if the data cannot tell or the pairs disagree."""
    if one.padding is None:
        return None
    low, high = one.padding_range or (one.padding, one.padding)
    if high <= PACKED:
        return "packed"
    if low >= PADDED:
        return "padded"
    return "partly padded" if low > PACKED and high < PADDED else None


def composition(one: Proposal) -> str:
    """A sentence on the engine's packing of rows with unequal drafts."""
    if one.padding is None:
        assert one.if_padded is not None
        return (
            "unknown, because every arm had one draft length for all rows; the prediction is for "
            "an "
            f"engine that packs rows, and is {one.if_padded:.3f} on one that pads them"
        )
    source = "by its own count" if one.told else "by the times of its rounds"
    composed = _composed(one)
    if composed == "packed":
        return f"packed, {source}: rows that draft less save time"
    if composed == "padded":
        return f"padded, {source}: rows that draft less save nothing"
    if composed:
        return f"{composed} ({one.padding:.0%}), {source}"
    low, high = one.padding_range or (one.padding, one.padding)
    return (
        f"not settled by {one.pairs} pairs: {source}, the engine computes {low:.0%} to {high:.0%} "
        "of the padding"
    )


def proposal_json(proposed: ProposedArms, file: Path) -> dict[str, Any]:
    """A proposal as plain values; `table` and `default_k` together can run as an arm."""
    one = proposed.proposal
    return {
        "schema": SCHEMA,
        **proposed.table.as_json(),
        "proposal": {
            **asdict(one),
            "grade": "modelled",
            "epoch": proposed.epoch,
            "composition": composition(one),
            "settled": settled(one),
            "worth": proposed.worth,
            "arms": list(proposed.arms(file)),
        },
    }


def _not_worth(proposed: ProposedArms) -> str:
    if not proposed.table.cells:
        return "no table that tells classes apart is predicted to beat one draft length for all"
    up = f"{GateRules().up:.0%}"
    high = proposed.proposal.gain.high
    if high is not None and high <= 1.0 + GateRules().up:
        return f"no table is predicted to gain {up} over one draft length for all"
    return "this table is already in force"


def _next_step(arms: Sequence[str]) -> list[str]:
    if len(arms) < 2:
        return []
    return [
        f"the deciding experiment: specscope gate calibrate --arms {','.join(arms)} --minutes 180"
    ]


def _times(one: Predicted) -> str:
    interval = "" if one.low is None else f" ({one.low:.3f} to {one.high:.3f})"
    return f"{one.value:.3f}{interval}"
