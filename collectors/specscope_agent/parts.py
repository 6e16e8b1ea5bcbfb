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
    """Columns of `request_part` without its source.

    A part ends with its request's last round in the batch, before a change of policy, pair or arm,
    and after a round in which the sequence ended. So `end` is valid for the part.
    """
    values = rounds.sequences
    order, opens = _by_request(values["requests"])
    row = rounds.row[order]
    _open_at_blocks(opens, row, rounds.scalars)
    _open_after_ends(opens, values["ends"], order)
    first = np.flatnonzero(opens)
    starts = np.append(first, len(row))
    lengths = np.diff(starts)
    head, heads, tails = rounds.scalars[row[first]], order[first], order[starts[1:] - 1]
    bins, counts, bin_starts = _gap_histograms(rounds, row, opens, len(first))
    usual = {"emitted": values["accepted"] + np.uint8(1), "verified": values["k"]}
    spelled = {name: _spelled_out(values[name], usual[name], order, starts) for name in usual}
    return {
        "request": values["requests"][heads],
        "first_seq": rounds.seq[row[first]],
        "last_seq": rounds.seq[rounds.row[tails]],
        "started_at": arrays.instants(head["started_at"]),
        "class": looked_up(names.classes, values["classes"][heads]),
        **block_columns(head, names),
        "context": values["contexts"][heads],
        "rounds": lengths,
        "k": arrays.lists(starts, values["k"][order]),
        "accepted": arrays.lists(starts, values["accepted"][order]),
        **{name: arrays.lists(*spelled[name]) for name in spelled},
        "end": looked_up(arrays.ENDS, values["ends"][tails]),
        "gap_bins": arrays.lists(bin_starts, bins, np.int16),
        "gap_counts": arrays.lists(bin_starts, counts, np.uint32),
    }


def _by_request(requests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A stable order that groups rounds by request, and the index at which each request begins."""
    codes = pa.array(requests).dictionary_encode().indices.to_numpy()
    # Small integers are sorted by radix, four times faster than 64-bit hashes.
    if len(codes) and codes.max() < 1 << 16:
        codes = codes.astype(np.uint16)
    order = np.argsort(codes, kind="stable")
    codes, begins = codes[order], np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=begins[1:])
    return order, begins


def _open_at_blocks(
    opens: NDArray[np.bool_], row: NDArray[np.int64], scalars: NDArray[Any]
) -> None:
    block = scalars[["policy", "pair", "arm"]]
    changed = block[1:] != block[:-1]
    if changed.any():
        blocks = np.concatenate([[0], np.cumsum(changed)])[row]
        opens[1:] |= blocks[1:] != blocks[:-1]


def _open_after_ends(
    opens: NDArray[np.bool_], ends: NDArray[np.uint8], order: NDArray[np.int64]
) -> None:
    if ends.any():
        opens[1:] |= ends[order[:-1]] != End.NONE


def _spelled_out(
    values: NDArray[np.uint8],
    usual: NDArray[np.uint8],
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Starts and values of a column that is empty for parts with only the usual value."""
    differs = values != usual
    if not differs.any():
        return np.zeros(len(starts), np.int64), np.zeros(0, np.uint8)
    spelled, lengths = arrays.totals(starts, differs[order]) > 0, np.diff(starts)
    kept = values[order][np.repeat(spelled, lengths)]
    return _offsets(np.where(spelled, lengths, 0)), kept


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
    """Bins, counts, and the start of each part.

    The gap before a request's round is the wall time of that round, plus the wall times of rounds
    without the request since its last one. Gaps with an unknown wall time are dropped.
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
    span = int(bins.max() - lowest + 1)
    distinct, counts = _counted(part * span + (bins - lowest), parts * span)
    per_part = np.bincount(distinct // span, minlength=parts)
    return distinct % span + lowest, counts, _offsets(per_part)


def _counted(keys: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Occurring keys in order, with their counts; each key is below `size`."""
    if size > 8 * len(keys):
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys, minlength=size)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]


def _time_between(
    wall: NDArray[np.float64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum of wall[start:stop] for each pair; nan if a value is unknown."""
    unknown = np.isnan(wall)
    until = np.concatenate([[0.0], np.cumsum(np.where(unknown, 0.0, wall))])
    holes = np.concatenate([[0], np.cumsum(unknown)])
    return np.where(holes[stop] > holes[start], np.nan, until[stop] - until[start])
