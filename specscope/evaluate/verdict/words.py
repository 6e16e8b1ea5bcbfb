"""English for verdicts: all sentences for actions, flags and reasons.

Standard library only. Codes and numbers are data (`verdict`); nothing parses these sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from specscope.evaluate.experiment.blocks import IN_FORCE, LeftOut
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.outputs.states import DIFFERS
from specscope.evaluate.verdict import cause_words
from specscope.evaluate.verdict.verdict import Action, Flag, Metric, Reason, Verdict, Why

ACTIONS: Mapping[Action, str] = {
    Action.KEEP: "keep, {what}",
    Action.SET_K: "set {what}",
    Action.DISABLE: "disable",
    Action.ROUTE: "route elsewhere",
    Action.NO_DIFFERENCE: "no difference",
    Action.COLLECT_BASELINE: "collect a baseline",
    Action.INCONCLUSIVE: "inconclusive",
    Action.NOT_COMPARABLE: "not comparable",
    Action.ENGINE_FAULT: "engine fault",
    Action.NO_DATA: "no data",
}


FLEET: Mapping[str, str] = {
    "keep": "Keep speculation: every kind of traffic measured here gains.",
    "route_selectively": "Speculate selectively: it pays for some of this traffic and not for all.",
    "remove_everywhere": "Remove speculation: no kind of traffic measured here gains.",
    "collect_baseline": "Undecided: nothing ran target-only beside the speculative arms.",
    "inconclusive": "Undecided: the evidence does not tell yet.",
    "no_data": "No data: no experiment ran in this period.",
}
GAINS_SO_FAR = "Speculate selectively: it pays for some of this traffic, the rest is undecided."

START_WITH: Mapping[Action, str] = {
    Action.KEEP: "start with {what}",
    Action.SET_K: "start with {what}",
    Action.DISABLE: "start without speculation",
    Action.NO_DIFFERENCE: "no difference: start without speculation, which is simpler",
    Action.COLLECT_BASELINE: "no two configurations to compare yet",
}


class FlagWords(NamedTuple):
    """sentence: the fault and the remedy. remedy: the remedy as a noun."""

    sentence: str
    remedy: str


FLAGS: Mapping[Flag, FlagWords] = {
    Flag.BASELINE_DRAFTS: FlagWords(
        "k0 spends time on drafts that it throws away, so every arm looks better than it is; "
        "use a baseline that does not draft",
        "a baseline that does not draft",
    ),
    Flag.INCONSISTENT_BASELINE: FlagWords(
        "a verify pass took less time than a target-only step of the same batch, which is "
        "impossible; compare the clocks",
        "phase times from one clock",
    ),
    Flag.IMPOSSIBLE_COUNTS: FlagWords(
        "the engine counted more accepted or emitted tokens than is possible; check the engine "
        "and its hook",
        "possible counters",
    ),
    Flag.OUTPUTS_DIFFER: FlagWords(
        "speculation changes outputs more often than target-only changes its own; fix that first",
        "outputs that equal target-only's",
    ),
    Flag.SAMPLE_RATIO: FlagWords(
        "the arms did not receive a fair share of the requests; the router must not see the arm",
        "a router that does not see the arm",
    ),
    Flag.TWINS_DIFFER: FlagWords(
        "the same policy, run twice in a pair, differed from itself",
        "blocks in which the same policy agrees with itself",
    ),
    Flag.NOT_SWAPPED: FlagWords(
        "no deploy separates the sides' hardware from their configurations",
        "a deploy with the configurations of the sides swapped",
    ),
    Flag.NOT_DRAFTED: FlagWords(
        "no arm drafted as many tokens as its length says, so no draft length was measured; look "
        "for a cap of the engine, a guardrail or a schedule",
        "an engine that drafts as many tokens as the arm says",
    ),
    Flag.FAILURES: FlagWords(
        "a side left more than 1 % of the requests without a whole answer",
        "a side that answers every request",
    ),
    Flag.LATE: FlagWords(
        "this machine sent requests later than the trace says", "a faster machine for the clients"
    ),
    Flag.SYNTHETIC_PROMPTS: FlagWords(
        "the trace holds no prompts, so acceptance is not that of the traffic",
        "a trace with its prompts",
    ),
    Flag.LENGTHS_DIFFER: FlagWords(
        "the sides wrote texts of different length to the same requests",
        "sides that write texts of equal length",
    ),
}

METRICS: Mapping[Metric, tuple[str, str]] = {
    Metric.TOKEN_TIME_P95: ("95th percentile of time per token", "ms"),
    Metric.TOKEN_TIME_MEAN: ("mean time per token of a request", "ms"),
    Metric.WALL_TIME: ("time per output token of the whole batch", "ms"),
    Metric.DEVICE_TIME: ("busy device time per output token", "ms"),
    Metric.PREEMPTIONS: ("preemptions per request", ""),
    Metric.CACHE: ("room of the key-value cache", "tokens"),
}

LEFT_OUT: Mapping[LeftOut, str] = {
    LeftOut.GUARDRAIL: "the guardrail put k = 0 in force",
    LeftOut.DRAFTED_BEYOND: "the engine drafted more than the arm says",
    LeftOut.UNEQUAL_REQUESTS: "blocks served different requests",
    LeftOut.AMBIGUOUS: "one name covers two configurations",
    LeftOut.UNDECLARED: "the sides differ in a part that was not declared",
    LeftOut.ONE_STREAM: "a side did not serve both streams",
    LeftOut.TWO_CONFIGURATIONS: "a side ran two configurations",
    LeftOut.NOT_MEASURED: "a block has no time or no tokens",
}


def action(what: Action, k: int | None, arm: str | None = None) -> str:
    """The action in words: `set k = 4`, or `set the table of mine` for a table's arm."""
    table = f"the table of {arm}" if arm and arm != IN_FORCE else "the table"
    return ACTIONS[what].format(what=table if k is None else f"k = {k}")


def start_with(verdict: Verdict) -> str:
    """The start settings for engines that cannot change k while they run."""
    tables = f"the table of {listed(verdict.best)}"
    if any("=" in name for name in verdict.best):  # named by what was declared to differ
        tables = listed(verdict.best)
    what = tables if verdict.k is None else f"k = {verdict.k}"
    return START_WITH.get(verdict.action, ACTIONS[verdict.action]).format(what=what)


def flag(one: Flag) -> str:
    """A flag with its code in front."""
    return f"{one}: {FLAGS[one].sentence}"


def estimate(one: Estimate) -> str:
    """A speedup with its interval and its pairs."""
    plural = "pair" if one.pairs == 1 else "pairs"
    text = f"{one.arm} runs at {one.value:.3f} of {one.baseline} "
    text += f"({_interval(one)}, {one.pairs} {plural})"
    if one.raw is None:
        return text
    plain = "" if one.raw.low is None else f" ({one.raw.low:.3g} to {one.raw.high:.3g})"
    return f"{text}, corrected for {one.held_equal}; uncorrected {one.raw.value:.3f}{plain}"


def explain(verdict: Verdict) -> list[str]:
    """All sentences of a verdict: flags, then speedups, then reasons."""
    return [
        *map(flag, verdict.flags),
        *map(estimate, verdict.speedups),
        *map(reason, verdict.reasons),
    ]


def reason(one: Reason) -> str:
    """A reason as a sentence; the code itself if it has no sentence."""
    write = REASONS.get(one.code)
    return one.code if write is None else write(one)


def reason_json(one: Reason) -> dict[str, Any]:
    """A reason as plain values, with its sentence as `text`."""
    return {
        "code": str(one.code),
        "arm": one.arm,
        "numbers": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in one.numbers.items()
        },
        "text": reason(one),
    }


def need(one: Reason) -> str:
    """The missing evidence of undecided traffic, as a noun."""
    if one.code == Why.PAIRS_NEEDED:
        return f"about {one['pairs']} pairs in total for {_of(one)}"
    return reason(one)


def change(one: Reason) -> str:
    """The repair that would turn a loss into a gain."""
    if one.code == Why.REMEDY:
        return f"{FLAGS[one['flag']].remedy} would make {_of(one)} pay"
    return reason(one)


def thin(arm: str | None, lacking: Sequence[Mapping[str, Any]]) -> str:
    """The reason for low confidence. lacking: numbers of each THIN reason of the arm."""
    counts = ", ".join(f"{one['have']} of {one['least']} {one['unit']}" for one in lacking)
    return f"low confidence: {arm} has {counts}"


def listed(names: Sequence[str]) -> str:
    """Names with commas between."""
    return ", ".join(names)


def _interval(one: Estimate) -> str:
    if one.low is None or one.high is None:
        return "interval unknown"
    return f"{one.low:.3g} to {one.high:.3g}"


def _outputs(one: Reason) -> str:
    twins = (
        f"target-only from itself in {one['twins_differing']} of {one['twins']}"
        if one["twins"]
        else "target-only was never repeated"
    )
    counts = f"{one['differing']} of {one['compared']} outputs differ"
    verb = "changes" if one["state"] == DIFFERS else "may change"
    return f"{one.arm} {verb} outputs: {counts}, {twins}"


def _worsens(one: Reason) -> str:
    name, unit = METRICS[one["metric"]]
    gap = " " if unit else ""
    moves = "rises" if one["after"] > one["before"] else "falls"
    return (
        f"{one.arm}: {name} {moves} from {one['before']:.3g} to {one['after']:.3g}{gap}{unit} "
        f"({one['ratio']:.2f} times, {one['low']:.3g} to {one['high']:.3g})"
    )


def _hardware(one: Reason) -> str:
    two = f"{one.arm} runs at {one['value']:.3f} of {one['baseline']}"
    return f"the sides' hardware alone: {two}" + (
        "" if one["low"] is None else f" ({one['low']:.3g} to {one['high']:.3g})"
    )


def _replay_gain(one: Reason) -> str:
    limits = (
        "interval unknown"
        if one["low"] is None or one["high"] is None
        else f"{one['low']:.3g} to {one['high']:.3g}"
    )
    return (
        f"{one['metric']}: {one['baseline']} {one['a']:.4g}, {one.arm} {one['b']:.4g} "
        f"{one['unit']}, {one['value']:.3f} times as fast ({limits})"
    )


REASONS: Mapping[str, Callable[[Reason], str]] = {
    Why.NO_BASELINE: lambda _: "no pair has both a target-only block and a speculative one",
    Why.NO_ARM: lambda _: "no speculative arm ran",
    Why.TIME_UNKNOWN: lambda _: "the time per output token is unknown in one of the arms",
    Why.UNDECIDED: lambda r: f"undecided: {listed(r['arms']) or 'which arm to run'}",
    Why.NO_GAIN: lambda r: f"no draft length gains {r['effect']:.0%}",
    Why.SURELY_SLOWER: lambda r: f"slower with 95 % confidence: {listed(r['arms'])}",
    Why.ALL_LOSE: lambda _: "every tried draft length loses to target-only",
    Why.CURRENT_LOSES: lambda _: "no draft length wins, and the one in force loses to target-only",
    Why.NOT_IN_FORCE: lambda r: f"undecided, and not in force: {listed(r['arms'])}",
    Why.NONE_WITHIN_ALLOWANCE: lambda _: (
        "every draft length that wins exceeds the latency limit of the class; target-only does not"
    ),
    Why.BEYOND_ALLOWANCE: lambda r: (
        f"{r.arm} takes {r['p95_ms']:.3g} ms per token (95th percentile); the limit is "
        f"{r['allowance_ms']:.3g} ms"
    ),
    Why.RIVALS: lambda r: (
        f"no proven difference between {r.arm} and {listed(r['arms'])}; {r.arm} is preferred"
    ),
    Why.BREAK_EVEN: lambda r: (
        f"{r.arm} yields {r['tokens_per_round']:.2f} tokens per round, break-even at "
        f"{r['break_even']:.2f}"
    ),
    Why.PAIRS_NEEDED: lambda r: f"needs about {r['pairs']} pairs in total",
    Why.THIN: lambda r: thin(r.arm, [r.numbers]),
    Why.THIN_OUTPUTS: lambda r: (
        f"{r.arm} may change outputs: too few requests ran twice at k = 0 to tell"
    ),
    Why.LEFT_OUT: lambda r: f"{r['pairs']} pairs dropped: {LEFT_OUT[r['reason']]}",
    Why.OUTPUTS: _outputs,
    Why.CAUSE: lambda r: cause_words.primary(r.numbers, r.arm),
    Why.CAUSES: lambda r: cause_words.rivals(r.numbers, r.arm),
    Why.NO_SINGLE_FIX: lambda r: (
        f"no single repair makes {r.arm} pay; each alone would give: {r['repairs'] or 'nothing'}"
    ),
    Why.CROSSOVER: lambda _: (
        "crossover by router: sides with fixed configurations, their traffic swapped"
    ),
    Why.CROSSING: lambda r: (
        f"{r.arm} and target-only are equal at load {r['load']:.3g}"
        + ("" if None in (r["low"], r["high"]) else f" ({r['low']:.3g} to {r['high']:.3g})")
        + ("; at higher load the arm loses" if r["falls"] else "; at lower load the arm loses")
    ),
    Why.BACKLOG: lambda r: (
        f"in {r['share']:.0%} of the pairs one arm's block leaves a queue that the other's drains, "
        "so this is not the speedup of a steady state"
        + (
            ""
            if r["capacity_low"] is None
            else f"; at saturation {r.arm} serves at least {r['capacity_low']:.3g} times the tokens"
        )
    ),
    Why.LOSSY: lambda r: (
        f"{r.arm} is lossy ({r['rule']}): requests get other outputs, so its speedup is not free"
    ),
    Why.HARDWARE: _hardware,
    Why.HARDWARE_INCLUDED: lambda r: (
        f"{r.arm} against {r['baseline']} includes the difference of the sides' hardware"
    ),
    Why.SWAP_NEXT: lambda _: (
        "swap the configurations at the next deploy, so that the hardware cancels"
    ),
    Why.NO_CONTRAST: lambda _: "fewer than two pairs ran different configurations on two sides",
    Why.IDLE_SPECULATION: lambda r: (
        f"k = 0 in a speculative engine costs {r['loss']:.1%}: run target-only traffic on engines "
        "started without speculation"
    ),
    Why.AMBIGUOUS: lambda r: (
        f"{r.arm} covers two configurations, {' and '.join(r['ways'])}: compare one at a time"
    ),
    Why.UNDECLARED: lambda r: (
        f"the sides differ in {r.arm}, {' and '.join(r['ways'])}: declare it with `--differs "
        f"{r.arm}`, or start both sides alike"
    ),
    Why.DRAFTED_LESS: lambda r: (
        f"{r.arm} is dropped: it drafted {r['drafted']:.2g} tokens per round instead of {r['k']}"
    ),
    Why.WORSENS: _worsens,
    Why.NO_PAIRS: lambda _: "no pair of blocks yet",
    Why.REPLAY_GAIN: _replay_gain,
    Why.FEW_REQUESTS: lambda r: f"{r['have']} of {r['least']} requests",
    Why.FEW_PARTS: lambda r: f"low confidence: {r['have']} of {r['least']} parts",
    Why.BASELINE_BLOCKS: lambda r: f"blocks at k = 0 beside the other blocks of {_of(r)}",
    Why.FOLLOWED_PAIRS: lambda r: (
        f"pairs of k = 0 and another draft length, both followed by the engine, for {_of(r)}"
    ),
    Why.REMEDY: lambda r: f"{FLAGS[r['flag']].remedy} for {_of(r)}",
    Why.REPAIR: lambda r: f"{cause_words.remedy(r['causes'])} would make {_of(r)} pay",
    Why.BETTER_DRAFT: lambda r: (
        f"a draft that is cheaper and agrees more often with the target would make {_of(r)} pay"
    ),
}


def _of(one: Reason) -> str:
    return "; ".join(one["segments"])
