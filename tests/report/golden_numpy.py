"""The report's figures from raw rows in numpy: a second opinion that shares no code with the first.

Everything follows from rows of `round`, `request_part`, `request`, `policy`, `boot`, `batch` and
`loss` by the definitions on the evaluator's page.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Row = Mapping[str, Any]
Key = tuple[str, str, int, int]  # replica, boot, policy, pair
Floats = NDArray[np.float64]
PARTS = ("draft", "verify", "sample", "idle", "catchup", "prefill")


@dataclass
class Block:
    """One arm of one pair, after the burn-in."""

    rounds: list[Row] = field(default_factory=list)
    parts: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    timed: list[Row] = field(default_factory=list)
    """Requests whose time per token counts: admitted well within the block."""

    def total(self, column: str) -> float:
        """Sum of a column over the rounds."""
        return float(np.sum([row[column] or 0 for row in self.rounds]))

    @property
    def token_times_ms(self) -> Floats:
        """Time per output token of each timed request."""
        return np.array([row["decode_ms"] / (row["output_tokens"] - 1) for row in self.timed])

    @property
    def classes(self) -> tuple[str, ...]:
        """That ran."""
        return tuple(sorted({name for row in self.rounds for name in row["classes"]}))


Pairs = dict[Key, dict[str, Block]]


def pairs_of(raw: Mapping[str, Sequence[Row]]) -> Pairs:
    """Blocks by pair and arm. raw: rows by table, each once, times in ns."""
    lengths = {row["policy"]: (row["block_ms"] or 0, row["burn_in_ms"] or 0)
               for row in raw["policy"]}  # fmt: skip
    pairs: Pairs = defaultdict(lambda: defaultdict(Block))

    def block(row: Row) -> Block:
        return pairs[row["replica"], row["boot"], row["policy"], row["pair"]][row["arm"]]

    for row in raw["round"]:
        if row["pair"] is not None and row["block_age_ms"] >= lengths[row["policy"]][1]:
            block(row).rounds.append(row)
    for row in raw["request_part"]:
        if row["pair"] is None:
            continue
        # A part that began in the burn-in is left out whole.
        settled = min((one["seq"] for one in block(row).rounds), default=math.inf)
        if row["first_seq"] >= settled:
            block(row).parts.append(row)
    for row in raw["request"]:
        if row["pair"] is None:
            continue
        length, burn_in = lengths[row["policy"]]
        age = row["admitted_at"] // 10**6 % length if length else 0
        block(row).requests.append(row)
        if (row["output_tokens"] or 0) > 1 and (not length or burn_in <= age <= length - burn_in):
            block(row).timed.append(row)
    return pairs


def tested_and_kept(parts: Iterable[Row]) -> tuple[Floats, Floats]:
    """Rounds in which each draft position was tested, and in which its proposal was kept."""
    tested, kept = np.zeros(256), np.zeros(256)
    for part in parts:
        verified = part["verified"] or part["k"]
        emitted = part["emitted"] or [a + 1 for a in part["accepted"]]
        for v, a, e in zip(verified, part["accepted"], emitted, strict=True):
            cut = e < a + 1  # the text ended within: what lies behind came out for nobody
            won = min(a, e) if cut else a
            seen = won if cut else a + 1
            tested[: min(seen, v)] += 1
            kept[:won] += 1
    last = int(np.max(np.nonzero(tested)[0], initial=-1)) + 1
    return tested[:last], kept[:last]


def arm_figures(blocks: Sequence[Block]) -> dict[str, Any]:
    """What the report says of one arm, from its blocks."""

    def total(column: str) -> float:
        return float(np.sum([block.total(column) for block in blocks]))

    emitted, wall_us = total("emitted"), total("wall_us")
    tested, kept = tested_and_kept(part for block in blocks for part in block.parts)
    times = np.sort(np.concatenate([block.token_times_ms for block in blocks]))
    first_token = [row["ttft_ms"] for block in blocks for row in block.requests
                   if row["ttft_ms"] is not None]  # fmt: skip
    parts = {part: 1e-3 * total(f"{part}_us") / emitted for part in PARTS}
    low, high = _survival_interval(blocks)
    seen = [(row["dram_active"], row["wall_us"]) for block in blocks for row in block.rounds
            if row["dram_active"] is not None]  # fmt: skip
    active, seen_us = np.array(seen).T
    return {
        "survival_low": low,
        "survival_high": high,
        "bandwidth": 1e6 * total("model_bytes") / total("verify_us"),
        "dram_active": float(np.sum(active * seen_us) / np.sum(seen_us)),
        "batch": total("batch") / sum(len(block.rounds) for block in blocks),
        "tokens_per_round": emitted / total("batch"),
        "tokens_per_second": 1e6 * emitted / wall_us,
        "ms_per_token": {**parts, "unseen": 1e-3 * wall_us / emitted - sum(parts.values())},
        "survival": np.cumprod(kept / tested),
        "at_risk": tested,
        "acceptance": total("accepted") / total("proposed") if total("proposed") else None,
        "queue": total("waiting") / sum(len(block.rounds) for block in blocks),
        "queue_delay_ms": float(np.mean(first_token)),
        "token_time_p95_ms": times[math.ceil(0.95 * len(times)) - 1],
        "chunk_gap_p95_ms": _gap_p95(part for block in blocks for part in block.parts),
        "emitted": emitted,
        "busy_ms_per_token": 1e-3 * (wall_us - total("idle_us")) / emitted,
        "preempted_per_request": total("preempted") / sum(len(b.requests) for b in blocks),
    }


def _survival_interval(blocks: Sequence[Block]) -> tuple[Floats, Floats]:
    """95 % interval of survival at each position: a block is a cluster, errors of its log add up
    along the positions."""
    counts = [tested_and_kept(block.parts) for block in blocks if block.parts]
    width = max(len(tested) for tested, _ in counts)
    tested, kept = (
        np.array([np.pad(row[place], (0, width - len(row[place]))) for row in counts])
        for place in (0, 1)
    )
    if not width:
        return np.zeros(0), np.zeros(0)
    hazard = kept.sum(axis=0) / tested.sum(axis=0)
    influence = np.cumsum((kept - hazard * tested) / (tested.sum(axis=0) * hazard), axis=1)
    n = len(counts)
    reach = stats.t.ppf(0.975, n - 1) * np.sqrt(n / (n - 1) * (influence**2).sum(axis=0))
    curve = np.cumprod(hazard)
    return curve * np.exp(-reach), np.minimum(1.0, curve * np.exp(reach))


def _gap_p95(parts: Iterable[Row]) -> float:
    """From the histograms that the rows carry: the middle of the bin that the rank falls into."""
    bins: Counter[int] = Counter()
    for part in parts:
        bins.update(dict(zip(part["gap_bins"], part["gap_counts"], strict=True)))
    wanted, seen = 0.95 * bins.total(), 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= wanted:
            return 2 * (1.01 / 0.99) ** number / (1.01 / 0.99 + 1)
    return math.nan


def log_speedup(
    pairs: Iterable[Mapping[str, Block]],
    arm: str,
    yields: Callable[[Block], float] = lambda block: block.total("emitted"),
    takes: Callable[[Block], float] = lambda block: block.total("wall_us"),
) -> tuple[float, float, int]:
    """log of an arm's rate over target-only's, its standard error over pairs, and the pairs."""
    both = [pair for pair in pairs if arm in pair and "k0" in pair]
    rows = [(yields(p[arm]), takes(p[arm]), yields(p["k0"]), takes(p["k0"])) for p in both]
    x1, y1, x0, y0 = np.array(rows).T
    r1, r0 = x1.sum() / y1.sum(), x0.sum() / y0.sum()
    influence = (x1 - r1 * y1) / x1.sum() - (x0 - r0 * y0) / x0.sum()
    error = math.sqrt(len(rows) / (len(rows) - 1) * np.sum(influence**2))
    return math.log(r1 / r0), error, len(rows)


def break_even(arm: Mapping[str, Any], speedup: float) -> float:
    """Tokens per round that make the arm as fast as target-only, prompts at their price."""
    total = 1e3 / arm["tokens_per_second"]
    prompts = arm["ms_per_token"]["prefill"]
    return float(arm["tokens_per_round"] * (total - prompts) / (total * speedup - prompts))


def saturation(blocks: Iterable[Block]) -> float:
    """Weight of tokens per second against time per token: by the queue beside what runs."""
    sums = np.sum([[block.total("waiting"), block.total("batch")] for block in blocks], axis=0)
    return float(np.clip((sums[0] / sums[1] - 0.05) / 0.15, 0.0, 1.0))


def interval(contrast: tuple[float, float, int], alpha: float) -> tuple[float, float]:
    """Of a ratio, by Student's t."""
    delta, error, pairs = contrast
    half = stats.t.ppf(1 - alpha / 2, pairs - 1) * error
    return math.exp(delta - half), math.exp(delta + half)


def sequence(deviation: float, pairs: int, alpha: float, tightest_at: int = 100) -> float:
    """Half-width of a confidence sequence (arXiv 2103.06476, its mixture tightest at 100 pairs),
    with Student's t over the normal quantile, since the deviation of a pair is estimated."""

    def margin(rho2: float, count: int) -> float:
        scaled = count * rho2 + 1
        return math.sqrt(2 * scaled / (count**2 * rho2) * math.log(math.sqrt(scaled) / alpha))

    rho2 = min(np.geomspace(1e-4, 10, 200_001), key=lambda rho2: margin(rho2, tightest_at))
    wider = stats.t.ppf(0.975, pairs - 1) / stats.norm.ppf(0.975)
    return float(deviation * margin(rho2, pairs) * wider)


def one_switch(segments: Sequence[Sequence[Mapping[str, Block]]], arms: Sequence[str]) -> float:
    """Speedup over target-only if every segment yields as many tokens. arms: one a segment."""

    def ms_per_token(pairs: Sequence[Mapping[str, Block]], arm: str) -> float:
        blocks = [pair[arm] for pair in pairs]
        return sum(b.total("wall_us") for b in blocks) / sum(b.total("emitted") for b in blocks)

    before = sum(ms_per_token(pairs, "k0") for pairs in segments)
    return before / sum(ms_per_token(p, arm) for p, arm in zip(segments, arms, strict=True))


def over_the_fleet(
    segments: Sequence[Sequence[Mapping[str, Block]]], arm: str
) -> tuple[float, float]:
    """Speedup of an arm over all segments: of pooled requests, and at one mix for both arms."""
    times, weights = [], []
    for pairs in segments:
        arms = [[pair[name] for pair in pairs if name in pair] for name in ("k0", arm)]
        walls = [sum(block.total("wall_us") for block in blocks) for blocks in arms]
        tokens = [sum(block.total("emitted") for block in blocks) for blocks in arms]
        times.append(np.divide(walls, tokens))
        weights.append([sum(len(block.requests) for block in blocks) for blocks in arms])
    t, w = np.array(times), np.array(weights, dtype=float)
    pooled = (t * w).sum(axis=0) / w.sum(axis=0)
    mixed = (t * w.sum(axis=1, keepdims=True)).sum(axis=0)
    return float(pooled[0] / pooled[1]), float(mixed[0] / mixed[1])


def outputs(requests: Iterable[Row], arm: str) -> Counter[str]:
    """Of each class: contents whose first output of an arm differs from target-only's first, and
    contents whose second output of target-only differs from its first."""
    by_content: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in requests:
        if row["ended_at"] is not None and row["pair"] == row["last_pair"]:
            by_content[row["class"], row["content"], row["arm"]].append(row)
    counts: Counter[str] = Counter()
    for (class_, content, name), rows in by_content.items():
        first = [row["digest"] for row in sorted(rows, key=lambda row: row["admitted_at"])]
        base = by_content.get((class_, content, "k0"))
        if name == "k0" and len(first) > 1:
            counts[f"{class_} twins"] += 1
            counts[f"{class_} twins_differing"] += first[0] != first[1]
        if name == arm and base:
            earliest = min(base, key=lambda row: row["admitted_at"])["digest"]
            counts[f"{class_} compared"] += 1
            counts[f"{class_} differing"] += first[0] != earliest
    return counts


def hours(rounds: Sequence[Row]) -> int:
    """Hours of the clock, from the first with a round to the last."""
    hour_ns = 3600 * 10**9
    starts = [row["started_at"] // hour_ns for row in rounds]
    return max(starts) - min(starts) + 1
