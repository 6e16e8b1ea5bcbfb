"""Measures the engine's speed: drafters over batch, context and k, and each part of a round.

Speedups are ratios to target-only decoding in the same run, with the same prompts."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import torch

from specscope.engine.api import RequestEnd, RequestInfo, RoundReport, SamplingParams, fixed_gate
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadSetting
from specscope.engine.model.decoder import Decoder
from specscope.engine.model.device import is_gpu
from specscope.engine.pair import DRAFTERS, Pair, bundled_prompts, card_of


def copy_bandwidth(device: str, megabytes: int = 128) -> float:
    """GB/s read and written by a large copy on `device`: the best of five."""
    source = torch.ones(megabytes << 18, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(5):
        _wait(device)
        began = time.perf_counter()
        target.copy_(source)
        _wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * source.nbytes / best / 1e9


def bytes_of_pass(model: Decoder) -> int:
    """Bytes of weights that a forward pass of a few tokens must read.

    It reads all weights, except most rows of an embedding table that the head does not share.
    """
    weights = {id(weight): weight.nbytes for weight in model.parameters()}
    if not model.config.tied:
        del weights[id(model.embed_tokens.weight)]
    return sum(weights.values())


def _wait(device: str) -> None:
    if is_gpu(device):
        torch.cuda.synchronize()


REHEARSALS = 2
"""The same requests give the same shapes, so the graphs that a rehearsal lacked are captured after
it; the second shows which need another copy, for the rounds that are unread at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a measurement."""

    batches: tuple[int, ...] = (1, 8, 32)
    contexts: tuple[int, ...] = (64,)
    ks: tuple[int, ...] = (2, 4)
    drafters: tuple[str, ...] = DRAFTERS
    labels: tuple[str, ...] = ("prose", "python", "sql", "json")
    new_tokens: int = 64
    temperature: float = 1.0
    repeats: int = 2


@dataclass(frozen=True, slots=True)
class Where:
    """The device of a measurement, and whether it uses CUDA graphs; see Engine."""

    device: str
    graphs: bool | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured cell; its times exclude rounds with idle rows.

    tokens_per_s counts emitted tokens over the walls of the full rounds; speedup is in terms of
    target-only decoding at the same batch, context and class. Times are medians a round.
    achieved_gb_s is the bytes that a round's verify pass had to read over its time; of_copy its
    share of the copy bandwidth measured in this run.
    """

    label: str
    drafter: str
    batch: int
    context: int
    k: int
    rounds: int
    tokens_per_s: float
    speedup: float | None
    tokens_per_round: float
    draft_us: float
    verify_us: float
    sample_us: float
    idle_us: float
    catchup_us: float
    achieved_gb_s: float
    of_copy: float


def bench(
    pair: Pair,
    plan: Plan,
    device: str = "cpu",
    graphs: bool | None = None,
    told: Callable[[str, int, int], object] | None = None,
) -> dict[str, object]:
    """Measure every cell of `plan`; a dictionary fit for JSON.

    told: called with "rows", the number of measured rows, and their total. graphs: see Engine. With
    graphs, each cell is rehearsed first, so that no capture falls into a measurement.

    Raises BadSetting if the plan names a missing drafter.
    """
    check_plan(plan, pair)
    where = Where(device, graphs)
    copy = copy_bandwidth(device)
    cells: list[Cell] = []
    rows = list(product(plan.labels, plan.batches, plan.contexts))
    for done, row in enumerate(rows):
        if told:
            told("rows", done, len(rows))
        cells += _row(pair, plan, where, row, copy)
    if told:
        told("rows", len(rows), len(rows))
    return {
        "schema": "specscope.engine.bench.bench/1",
        "pair": pair.name,
        "device": device,
        "graphs": is_gpu(device) if graphs is None else graphs,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "copy_gb_s": copy,
        "plan": asdict(plan),
        "cells": [asdict(cell) for cell in cells],
    }


def check_plan(plan: Plan, pair: Pair) -> None:
    """Raises BadSetting."""
    for name in plan.drafters:
        pair.drafter(name)
    labels = {prompt.label for prompt in bundled_prompts()}
    if set(plan.labels) - labels:
        raise BadSetting(f"unknown class {min(set(plan.labels) - labels)!r}")


class _Rounds:
    """Keep rounds with all rows live and without prefill."""

    def __init__(self, batch: int) -> None:
        self.batch, self.kept = batch, list[RoundReport]()

    def round_begins(self) -> None:
        """Nothing to note."""

    def round_ended(self, report: RoundReport) -> None:
        """Keep it if it is full and steady."""
        if len(report.requests) == self.batch and not report.prefill_tokens:
            self.kept.append(report)

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def ended(self, end: RequestEnd) -> None:
        """Nothing to note."""


def _row(
    pair: Pair, plan: Plan, where: Where, place: tuple[str, int, int], copy: float
) -> list[Cell]:
    """All drafters and ks at one class, batch and context, repeats in turn."""
    arms = [(name, k) for name in plan.drafters if name != "none" for k in plan.ks]
    arms = [("none", 0), *arms]
    reports: dict[tuple[str, int], list[RoundReport]] = {arm: [] for arm in arms}
    for repeat in range(plan.repeats):
        for arm in arms if repeat % 2 == 0 else reversed(arms):
            reports[arm] += _run(pair, plan, where, place, arm, repeat)
    base = _speed(reports["none", 0])
    return [_cell(pair, place, arm, reports[arm], base, copy) for arm in arms if reports[arm]]


def _run(
    pair: Pair,
    plan: Plan,
    where: Where,
    place: tuple[str, int, int],
    arm: tuple[str, int],
    repeat: int,
) -> list[RoundReport]:
    label, batch, context = place
    rounds = _Rounds(batch)
    engine = Engine(
        pair.target, pair.drafter(arm[0]), k_max=max(1, arm[1]), slots=batch,
        capacity=context + plan.new_tokens + 1, gate=fixed_gate(arm[1]), observers=[rounds],
        device=where.device, prefill_tokens=batch * context, graphs=where.graphs,
    )  # fmt: skip
    prompts = list(_prompts(pair, label, context, batch))
    for _ in range(1 + REHEARSALS * (engine.graphs is not None)):
        rounds.kept.clear()
        for index, prompt in enumerate(prompts):
            params = SamplingParams(
                plan.temperature, seed=1000 * repeat + index, max_new_tokens=plan.new_tokens
            )
            engine.submit(str(index), prompt, params)
        while engine.step():
            pass
        engine.capture()
    return rounds.kept


def _prompts(pair: Pair, label: str, context: int, batch: int) -> Iterable[list[int]]:
    """`batch` prompts of exactly `context` tokens; short texts are joined."""
    texts = [pair.encode(prompt.text) for prompt in bundled_prompts() if prompt.label == label]
    for index in range(batch):
        ids: list[int] = []
        while len(ids) < context:
            ids += texts[(index + len(ids)) % len(texts)]
        yield ids[:context]


def _speed(reports: Sequence[RoundReport]) -> float:
    wall = sum(report.wall_us for report in reports)
    return 1e6 * sum(sum(report.emitted) for report in reports) / wall if wall else 0.0


def _cell(
    pair: Pair,
    place: tuple[str, int, int],
    arm: tuple[str, int],
    reports: list[RoundReport],
    base: float,
    copy: float,
) -> Cell:
    label, batch, context = place
    sequences = sum(len(report.requests) for report in reports)
    weights, kv = bytes_of_pass(pair.target), card_of(pair.target)["kv_bytes_per_token"]
    read = [weights + kv * sum(report.contexts) for report in reports]
    median = {
        part: statistics.median(getattr(report, f"{part}_us") or 0.0 for report in reports)
        for part in ("draft", "verify", "sample", "idle", "catchup")
    }
    achieved = statistics.median(
        size / report.verify_us / 1e3 for size, report in zip(read, reports, strict=True)
    )
    speed = _speed(reports)
    return Cell(
        label=label,
        drafter=arm[0],
        batch=batch,
        context=context,
        k=arm[1],
        rounds=len(reports),
        tokens_per_s=speed,
        speedup=speed / base if arm[0] != "none" and base else None,
        tokens_per_round=sum(sum(report.emitted) for report in reports) / sequences,
        draft_us=median["draft"],
        verify_us=median["verify"],
        sample_us=median["sample"],
        idle_us=median["idle"],
        catchup_us=median["catchup"],
        achieved_gb_s=achieved,
        of_copy=achieved / copy,
    )


def table(result: dict[str, object]) -> str:
    """The cells as text, one line each."""
    head = (
        f"{'class':8}{'drafter':8}{'batch':>6}{'context':>8}{'k':>3}{'tok/s':>9}{'speedup':>9}"
        f"{'tok/round':>10}{'catchup':>8}{'draft':>8}{'verify':>8}{'sample':>8}{'idle':>8}"
        f"{'GB/s':>7}{'of copy':>8}"
    )
    lines = [f"copy bandwidth {result['copy_gb_s']:.1f} GB/s; times in ms a round", head]
    cells = result["cells"]
    assert isinstance(cells, list)
    for c in cells:
        speedup = "" if c["speedup"] is None else f"{c['speedup']:.2f}x"
        parts = "".join(
            f"{c[f'{name}_us'] / 1e3:8.2f}"
            for name in ("catchup", "draft", "verify", "sample", "idle")
        )
        lines.append(
            f"{c['label']:8}{c['drafter']:8}{c['batch']:6}{c['context']:8}{c['k']:3}"
            f"{c['tokens_per_s']:9.0f}{speedup:>9}{c['tokens_per_round']:10.2f}{parts}"
            f"{c['achieved_gb_s']:7.1f}{c['of_copy']:8.0%}"
        )
    return "\n".join(lines)
