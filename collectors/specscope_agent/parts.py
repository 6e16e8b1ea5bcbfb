"""Request parts: a request's rounds within one batch, never across a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specscope_agent import arrays
from specscope_agent.arrays import Names, looked_up
from specscope_agent.payloads import Rounds
from specscope_agent.rounds import block_columns
from specscope_hook.columns import End

LOG_BIN = np.log(1.01 / 0.99)  # bins 2 % wide: a quantile read from them is within 1 %
SHORTEST_GAP_MS, LONGEST_GAP_MS = 1e-3, 1e9
NO_GAP = np.iinfo(np.int64).min


def part_columns(rounds: Rounds, names: Names) -> dict[str, Any]:
    """Columns of `request_part` but its source.

    A part ends where its request's rounds in the batch do, where the policy, pair or arm
    changes, and after a round in which the sequence ended, so `end` holds for the part.
    """
    order = _by_request(rounds.sequences["requests"])
    row = rounds.row[order]
    values = {name: each[order] for name, each in rounds.sequences.items()}
    opens = _openings(values, row, rounds.scalars)
    first = np.flatnonzero(opens)
    starts = np.append(first, len(row))
    last = starts[1:] - 1
    head = rounds.scalars[row[first]]
    differs = values["emitted"] != values["accepted"].astype(np.uint16) + np.uint16(1)
    spelled = arrays.totals(starts, differs) > 0
    emitted = values["emitted"][np.repeat(spelled, np.diff(starts))]
    bins, counts, bin_starts = _gap_histograms(rounds, row, opens, len(first))
    return {
        "request": values["requests"][first],
        "first_seq": rounds.seq[row[first]],
        "last_seq": rounds.seq[row[last]],
        "started_at": arrays.instants(head["started_at"]),
        "class": looked_up(names.classes, values["classes"][first]),
        **block_columns(head, names),
        "context": values["contexts"][first],
        "rounds": np.diff(starts),
        "k": arrays.lists(starts, values["k"]),
        "accepted": arrays.lists(starts, values["accepted"]),
        "emitted": arrays.lists(_offsets(np.where(spelled, np.diff(starts), 0)), emitted),
        "end": looked_up(arrays.ENDS, values["ends"][last]),
        "gap_bins": arrays.lists(bin_starts, bins, np.int16),
        "gap_counts": arrays.lists(bin_starts, counts, np.uint32),
    }


def _by_request(requests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Order that brings each request's rounds together and keeps them in sequence."""
    codes = pa.array(requests).dictionary_encode().indices.to_numpy()
    # Small integers are sorted by radix, four times faster than 64-bit hashes.
    kind = np.uint16 if len(codes) == 0 or codes.max() < 1 << 16 else np.int64
    return np.argsort(codes.astype(kind), kind="stable")


def _openings(
    values: dict[str, NDArray[Any]], row: NDArray[np.int64], scalars: NDArray[Any]
) -> NDArray[np.bool_]:
    block = scalars[["policy", "pair", "arm"]]
    changed = block[1:] != block[:-1]
    opens = np.ones(len(row), np.bool_)
    opens[1:] = values["requests"][1:] != values["requests"][:-1]
    if changed.any():
        blocks = np.concatenate([[0], np.cumsum(changed)])[row]
        opens[1:] |= blocks[1:] != blocks[:-1]
    opens[1:] |= values["ends"][:-1] != End.NONE
    return opens


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])


def gap_bin(milliseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bin of the log-histogram: ceil(ln(ms) / ln(1.01 / 0.99)); NO_GAP for nan."""
    unknown = np.isnan(milliseconds)
    longest = np.where(unknown, 1.0, np.clip(milliseconds, SHORTEST_GAP_MS, LONGEST_GAP_MS))
    return np.where(unknown, NO_GAP, np.ceil(np.log(longest) / LOG_BIN).astype(np.int64))


def _gap_histograms(
    rounds: Rounds, row: NDArray[np.int64], opens: NDArray[np.bool_], parts: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Bins, counts, and where each part's begin.

    The gap before a request's round is that round's wall time, plus that of the rounds
    since its last one in which it did not take part. It is left out where a wall time
    is unknown.
    """
    wall = rounds.scalars["wall_us"].astype(np.float64) / 1e3
    bins = gap_bin(wall)[row]
    skipped = np.flatnonzero(~opens[1:] & (np.diff(row) > 1)) + 1
    if len(skipped):
        bins[skipped] = gap_bin(_time_between(wall, row[skipped - 1] + 1, row[skipped] + 1))
    part = np.cumsum(opens) - 1
    seen = bins != NO_GAP
    if not seen.all():
        bins, part = bins[seen], part[seen]
    if not len(bins):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros(parts + 1, np.int64)
    lowest = bins.min()
    span = bins.max() - lowest + 1
    keys = np.sort(part * span + (bins - lowest))
    changes = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(np.append(changes, len(keys)))
    distinct = keys[changes]
    per_part = np.bincount(distinct // span, minlength=parts)
    return distinct % span + lowest, counts, _offsets(per_part)


def _time_between(
    wall: NDArray[np.float64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum of wall[start:stop] for each pair; nan where one of them is unknown."""
    unknown = np.isnan(wall)
    until = np.concatenate([[0.0], np.cumsum(np.where(unknown, 0.0, wall))])
    holes = np.concatenate([[0], np.cumsum(unknown)])
    return np.where(holes[stop] > holes[start], np.nan, until[stop] - until[start])
