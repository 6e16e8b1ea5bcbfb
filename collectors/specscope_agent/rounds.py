"""Round rows: a round's scalars, its sums, and its sums by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specscope_agent import arrays
from specscope_agent.arrays import Names, finite, known, looked_up
from specscope_agent.card import ModelCard
from specscope_agent.payloads import Rounds

_PLAIN = ("waiting", "prefill_tokens", "padded_tokens", "invalid", "preempted")
_PARTS = ("wall_us", "draft_us", "verify_us", "sample_us", "idle_us", "catchup_us", "prefill_us")


def round_columns(rounds: Rounds, names: Names, card: ModelCard) -> dict[str, Any]:
    """Columns of `round` but its source and its device sample."""
    scalars = rounds.scalars
    columns: dict[str, Any] = {"seq": rounds.seq}
    columns["started_at"] = arrays.instants(scalars["started_at"])
    columns |= block_columns(scalars, names)
    unknown = scalars["arm"] == arrays.NO_ARM
    columns["block_age_ms"] = known(scalars["block_age_ms"], unknown)
    columns["timing_source"] = looked_up(arrays.TIMING_SOURCES, scalars["timing_source"])
    columns |= {name: finite(scalars[name]) for name in _PARTS}
    columns |= {name: scalars[name] for name in _PLAIN}
    return columns | _sums(rounds, card) | _by_class(rounds, names)


def block_columns(scalars: NDArray[Any], names: Names) -> dict[str, Any]:
    """Policy, pair and arm; unknown where there is none."""
    return {
        "policy": known(scalars["policy"], scalars["policy"] == 0),
        "pair": known(scalars["pair"], scalars["pair"] == 0),
        "arm": looked_up(names.arms, scalars["arm"]),
    }


def _sums(rounds: Rounds, card: ModelCard) -> dict[str, Any]:
    starts, values = rounds.starts, rounds.sequences
    k = values["k"].astype(np.int64)
    contexts = values["contexts"].astype(np.int64)
    proposed = arrays.totals(starts, k)
    n_q, n_kv = proposed + rounds.batch, arrays.totals(starts, contexts)
    longest = arrays.largest(starts, values["k"])
    moved = card.model_bytes(
        k=longest.astype(np.float64),
        n_q=(n_q + rounds.scalars["prefill_tokens"]).astype(np.float64),
        n_kv=n_kv.astype(np.float64),
        draft_kv=arrays.totals(starts, k * contexts).astype(np.float64),
    )
    unknown = np.isnan(moved)
    return {
        "batch": rounds.batch,
        "k": longest,
        "n_q": n_q,
        "n_kv": n_kv,
        "proposed": proposed,
        "accepted": arrays.totals(starts, values["accepted"]),
        "emitted": arrays.totals(starts, values["emitted"]),
        "model_bytes": known(np.where(unknown, 0, moved).astype(np.uint64), unknown),
    }


def _by_class(rounds: Rounds, names: Names) -> dict[str, Any]:
    values, row_count = rounds.sequences, len(rounds.batch)
    present = np.flatnonzero(np.bincount(values["classes"], minlength=256))
    width = max(len(present), 1)
    code = np.zeros(256, np.int64)
    code[present] = np.arange(len(present))
    cell = rounds.row * width + code[values["classes"]]

    def by_cell(weights: NDArray[Any] | None = None) -> NDArray[np.int64]:
        # Sums of integers in float64: exact below 2 ** 53.
        return np.bincount(cell, weights, row_count * width).astype(np.int64)

    sequences = by_cell()
    filled = np.flatnonzero(sequences)
    starts = np.concatenate([[0], np.cumsum((sequences > 0).reshape(row_count, width).sum(axis=1))])
    labels = (
        looked_up(names.classes, present[filled % width])
        if len(filled)
        else pa.array([], pa.string())
    )
    sums = {
        "class_proposed": (values["k"], np.uint32),
        "class_accepted": (values["accepted"], np.uint32),
        "class_emitted": (values["emitted"], np.uint32),
        "class_context": (values["contexts"], np.uint64),
    }
    return {
        "classes": arrays.lists(starts, labels),
        "class_sequences": arrays.lists(starts, sequences[filled], np.uint32),
    } | {
        name: arrays.lists(starts, by_cell(each)[filled], kind)
        for name, (each, kind) in sums.items()
    }
