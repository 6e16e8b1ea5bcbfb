"""Round rows: a round's scalars, its sums, and its sums by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from specscope_agent import arrays
from specscope_agent.arrays import Names, finite, known, looked_up
from specscope_agent.card import ModelCard
from specscope_agent.payloads import Rounds
from specscope_hook.columns import columns
from specscope_hook.records import RoundMeasures

_PARTS = [column.name for column in columns(RoundMeasures) if column.nullable]
_COUNTS = [column.name for column in columns(RoundMeasures) if column.base.startswith("u")]


def round_columns(rounds: Rounds, names: Names, card: ModelCard) -> dict[str, Any]:
    """Columns of `round` without its source and its device sample."""
    scalars = rounds.scalars
    columns: dict[str, Any] = {"seq": rounds.seq}
    columns["started_at"] = arrays.instants(scalars["started_at"])
    columns |= block_columns(scalars, names)
    unknown = scalars["arm"] == arrays.NO_ARM
    columns["block_age_ms"] = known(scalars["block_age_ms"], unknown)
    columns["timing_source"] = looked_up(arrays.TIMING_SOURCES, scalars["timing_source"])
    columns |= {name: finite(scalars[name]) for name in _PARTS}
    columns |= {name: scalars[name] for name in _COUNTS}
    cells = Cells.of(rounds)
    return columns | _sums(rounds, cells, card) | _by_class(cells, names)


def block_columns(scalars: NDArray[Any], names: Names) -> dict[str, Any]:
    """Policy, pair and arm; each is unknown if the round has none."""
    return {
        "policy": known(scalars["policy"], scalars["policy"] == 0),
        "pair": known(scalars["pair"], scalars["pair"] == 0),
        "arm": looked_up(names.arms, scalars["arm"]),
    }


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums over the sequences of one class in one round.

    classes: [C] that occur, by the ring's dictionary
    Each matrix is [R, C] and holds a sum over sequences.
    """

    classes: NDArray[np.int64]
    sequences: NDArray[np.int64]
    proposed: NDArray[np.int64]
    verified: NDArray[np.int64]
    accepted: NDArray[np.int64]
    emitted: NDArray[np.int64]
    context: NDArray[np.int64]

    @classmethod
    def of(cls, rounds: Rounds) -> Self:
        values, shape = rounds.sequences, [len(rounds.batch), 1]
        classes = np.flatnonzero(np.bincount(values["classes"], minlength=256))
        shape[1] = max(len(classes), 1)
        code = np.zeros(256, np.int64)
        code[classes] = np.arange(len(classes))
        cell = rounds.row * shape[1] + code[values["classes"]]

        def total(weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
            # Sums of integers in float64: exact below 2 ** 53.
            sums = np.bincount(cell, weights, shape[0] * shape[1])
            return sums.astype(np.int64).reshape(shape)

        names = ("k", "verified", "accepted", "emitted", "contexts")
        return cls(classes, total(), *(total(values[name]) for name in names))


def _sums(rounds: Rounds, cells: Cells, card: ModelCard) -> dict[str, Any]:
    verified, n_kv = cells.verified.sum(axis=1), cells.context.sum(axis=1)
    n_q = verified + rounds.batch
    longest = arrays.largest(rounds.starts, rounds.sequences["k"])
    moved = card.model_bytes(
        k=longest.astype(np.float64),
        n_q=(n_q + rounds.scalars["prefill_tokens"]).astype(np.float64),
        n_kv=n_kv.astype(np.float64),
        draft_kv=_draft_kv(rounds) if card.has_draft else np.zeros(len(n_kv)),
    )
    unknown = np.isnan(moved)
    return {
        "batch": rounds.batch,
        "k": longest,
        "n_q": n_q,
        "n_kv": n_kv,
        "proposed": cells.proposed.sum(axis=1),
        "verified": verified,
        "accepted": cells.accepted.sum(axis=1),
        "emitted": cells.emitted.sum(axis=1),
        "model_bytes": known(np.where(unknown, 0, moved).astype(np.uint64), unknown),
    }


def _draft_kv(rounds: Rounds) -> NDArray[np.float64]:
    """Cache entries that the draft model reads in a round: sum of k times context."""
    values = rounds.sequences
    read = values["k"] * values["contexts"].astype(np.float64)
    return np.bincount(rounds.row, read, len(rounds.batch)).astype(np.float64)


def _by_class(cells: Cells, names: Names) -> dict[str, Any]:
    rows, codes = np.nonzero(cells.sequences)
    starts = np.concatenate([[0], np.cumsum((cells.sequences > 0).sum(axis=1))])
    # Without a single sequence there is no class to look up either.
    labels = looked_up(names.classes, cells.classes[codes] if len(codes) else codes)
    sums = {
        "class_sequences": (cells.sequences, np.uint32),
        "class_proposed": (cells.proposed, np.uint32),
        "class_verified": (cells.verified, np.uint32),
        "class_accepted": (cells.accepted, np.uint32),
        "class_emitted": (cells.emitted, np.uint32),
        "class_context": (cells.context, np.uint64),
    }
    return {"classes": arrays.lists(starts, labels)} | {
        name: arrays.lists(starts, each[rows, codes], kind) for name, (each, kind) in sums.items()
    }
