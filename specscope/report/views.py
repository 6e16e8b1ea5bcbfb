"""Turn the evaluator's values into the report's rows: one function per row, without reading or
deciding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

from specscope.assess import answer
from specscope.evaluate.causes.diagnosis import CauseOdds, Diagnosis
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.statistics.acceptance import Survival
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.evaluate.statistics.ratio import t_quantile
from specscope.evaluate.verdict import cause_words, words
from specscope.evaluate.verdict.fleet import FleetVerdict
from specscope.evaluate.verdict.prices import Cost, costs
from specscope.evaluate.verdict.reasons import break_even
from specscope.evaluate.verdict.strata import FleetRatio
from specscope.evaluate.verdict.switch import SwitchComparison
from specscope.evaluate.verdict.untried import Untried
from specscope.evaluate.verdict.verdict import Action, Confidence, Reason, Verdict
from specscope.report import model

LoadNames = Mapping[str, str]


def headline(verdicts: Sequence[Verdict], fleet: FleetVerdict) -> str:
    """The answer in two sentences."""
    if not verdicts:
        return words.FLEET[fleet.action]
    gain, fail = len(fleet.gain), len(fleet.fail)
    # A segment without a pair is no evidence either way.
    empty = sum(not (v.pairs or v.action.settles) for v in verdicts)
    total = len(verdicts) - empty
    rest = total - gain - fail
    counts = [
        f"{gain} {'gain' if gain != 1 else 'gains'}" if gain else "",
        f"{fail} {'do' if fail != 1 else 'does'} not" if fail else "",
        f"{rest} undecided" if rest else "",
    ]
    kinds = f"{total} kind{'s' if total != 1 else ''} of traffic"
    without = f" {empty} more {'have' if empty != 1 else 'has'} no pair yet." if empty else ""
    faults = sum(v.action is Action.ENGINE_FAULT for v in verdicts)
    so_far = gain and not fail and (rest or empty)
    answer = words.GAINS_SO_FAR if so_far else words.FLEET[fleet.action]
    return (
        f"{answer} {kinds}: {', '.join(filter(None, counts)) or 'none decided'}.{without}"
        + (
            f" In {faults}, speculation changes outputs or counters are impossible."
            if faults
            else ""
        )
        + _thin([v for v in verdicts if v.action.gains or v.action.fails])
    )


def _thin(decided: Sequence[Verdict]) -> str:
    """Whether verdicts are too weak to change a gate, as a sentence; empty if none is."""
    weak = sum(v.confidence is not Confidence.HIGH for v in decided)
    if not weak:
        return ""
    if weak == len(decided):
        return " Confidence is too low to change a gate."
    return f" For {weak} of them, confidence is too low to change a gate."


def segment_row(
    verdict: Verdict,
    name: str,
    of_hour: Mapping[str, float] | None = None,
    quality: model.Quality | None = None,
) -> model.SegmentRow:
    """A verdict with its arms. name: the segment's name in the report. of_hour: price per replica
    hour, by epoch. quality: losses that weaken the evidence."""
    speedups = {one.arm: one for one in verdict.speedups}
    cost = costs(verdict, of_hour or {})
    shared = answer(verdict)
    return model.SegmentRow(
        **{field.name: getattr(shared, field.name) for field in fields(shared)},
        name=name,
        flags=[model.FlagRow(str(one), words.FLAGS[one].sentence) for one in verdict.flags],
        reasons=[_reason(one) for one in verdict.reasons],
        arms=[_arm(a, speedups.get(a.arm), cost.get(a.arm), verdict.metric) for a in verdict.arms],
        causes=_losses(verdict.diagnoses),
        metric=verdict.metric,
        quality=quality or model.Quality(),
        tradeoffs=[
            model.TradeoffRow(
                metric=str(one.metric),
                arm=one.arm,
                baseline=one.baseline,
                before=one.before,
                after=one.after,
                ratio=one.ratio,
                low=one.low,
                high=one.high,
                worsens=one.worsens,
            )
            for one in verdict.tradeoffs
        ],
    )


def _reason(one: Reason) -> model.ReasonRow:
    plain = words.reason_json(one)
    return model.ReasonRow(plain["code"], plain["arm"], plain["numbers"], plain["text"])


def _losses(diagnoses: Sequence[Diagnosis]) -> list[model.LossCauses]:
    return [
        model.LossCauses(
            arm=found.arm,
            speedup=found.speedup,
            primary=found.primary,
            cause_odds=cause_odds_rows(found.cause_odds),
            causes=[
                model.CauseRow(
                    cause=one.cause,
                    speedup=one.speedup,
                    flips=one.flips,
                    evidence=cause_words.evidence(one.cause, one.numbers),
                    low=one.low,
                    high=one.high,
                    numbers=dict(one.numbers),
                )
                for one in found.repairs
            ],
            unseen={one.cause: list(one.needs) for one in found.unseen},
        )
        for found in diagnoses
        if found.cause_odds
    ]


def cause_odds_rows(rivals: Sequence[CauseOdds]) -> list[model.CauseOddsRow]:
    """The causes that may be the largest."""
    return [model.CauseOddsRow(one.cause, one.odds, one.speedup, list(one.needs)) for one in rivals]


def output_row(check: OutputCheck) -> model.OutputRow:
    """How often one arm's outputs differ."""
    return model.OutputRow(
        label=check.class_,
        arm=check.arm,
        state=check.state,
        compared=check.compared,
        differing=check.differing,
        twins=check.twins,
        twins_differing=check.twins_differing,
        excess=check.excess,
        low=check.low,
        high=check.high,
    )


def untried_row(found: Untried) -> model.UntriedRow:
    """The modelled limit of an untried draft length."""
    return model.UntriedRow(found.segment, found.k, found.at_best, found.worth)


def fleet_row(found: FleetRatio) -> model.FleetRow:
    """One arm over the whole fleet, pooled and at the fleet's mix."""
    return model.FleetRow(
        arm=found.arm,
        segments=found.segments,
        pooled=found.speedup.naive,
        standardised=found.speedup.standardised,
        turned=found.speedup.turned,
    )


def turned_around(found: Sequence[FleetRatio]) -> list[str]:
    """A sentence for each arm whose pooled total has the opposite sign of its segments."""
    return [
        f"Simpson's paradox: {one.arm} pooled runs at {one.speedup.naive:.2f}x and at the fleet's "
        f"mix at {one.speedup.standardised:.2f}x; its traffic differs from target-only's, so use "
        "the verdicts of the segments"
        for one in found
        if one.speedup.turned
    ]


def story_row(story: SwitchComparison, loads: LoadNames) -> model.StoryRow:
    """One switch against a gate. The switch that a person would flip first is the longest k."""
    naive = max(story.switches, key=lambda one: one.k or 0)
    return model.StoryRow(
        load=loads.get(story.load or "", story.load or "unknown"),
        switches=[_switch(one) for one in story.switches],
        naive_k=naive.k or 0,
        best_k=story.best.k or 0,
        gate=_switch(story.gate),
        gain=_switch(story.gain),
        table={segment.class_ or "mixed": k for segment, k in story.table},
    )


def _percentile(found: QuantileEstimate | None) -> model.Percentile | None:
    return None if found is None else model.Percentile(found.value, found.low, found.high)


def _switch(one: Estimate) -> model.RatioRow:
    return model.RatioRow(k=one.k, value=one.value, low=one.low, high=one.high)


def _arm(arm: ArmSummary, speedup: Estimate | None, cost: Cost | None, metric: str) -> model.ArmRow:
    low, high = _survival_interval(arm.survival)
    return model.ArmRow(
        arm=arm.arm,
        k=arm.k,
        pairs=speedup.pairs if speedup else arm.blocks,
        batch=arm.batch,
        tokens_per_round=arm.tokens_per_round.value,
        tokens_per_second=arm.tokens_per_s,
        speedup=speedup.value if speedup else None,
        low=speedup.low if speedup else None,
        high=speedup.high if speedup else None,
        chunk_gap_p95_ms=arm.gap_p95_ms.value if arm.gap_p95_ms else None,
        ms_per_token=dict(arm.ms_per_token),
        survival=[float(value) for value in arm.survival.survival] if arm.survival else [],
        at_risk=[int(value) for value in arm.survival.at_risk] if arm.survival else [],
        survival_low=low,
        survival_high=high,
        break_even=break_even(arm, speedup, metric) if speedup and arm.k else None,
        cost_per_million=cost.per_million if cost else None,
        cost_difference=cost.difference if cost else None,
        held_equal=speedup.held_equal if speedup else "",
        unadjusted=speedup.raw.value if speedup and speedup.raw else None,
        acceptance=arm.accepted / arm.proposed if arm.proposed else None,
        queue=arm.queue,
        queue_delay_ms=arm.queue_delay_ms,
        token_time_p95_ms=_percentile(arm.tpot_p95_ms),
        bandwidth=arm.bandwidth,
        dram_active=arm.dram_active,
    )


def _survival_interval(
    curve: Survival | None, level: float = 0.95
) -> tuple[list[float | None], list[float | None]]:
    """Both ends of the interval at each position; None for a single cluster or if no token was
    kept."""
    if curve is None:
        return [], []
    low: list[float | None] = []
    high: list[float | None] = []
    for value, error in zip(curve.survival, curve.se_log, strict=True):
        if error is None or curve.clusters < 2:
            low.append(None)
            high.append(None)
            continue
        reach = math.exp(min(t_quantile(level, curve.clusters - 1) * error, 700.0))
        low.append(value / reach)
        high.append(min(1.0, value * reach))
    return low, high
