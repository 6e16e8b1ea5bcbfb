"""What a crossover by router says, from the blocks in a store.

Its policy has one arm, `current`, so that a hook numbers the blocks and changes nothing; it names
the replicas of both sides. What a replica ran follows from its Boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specscope.evaluate import checks, objectives, ratio
from specscope.evaluate.blocks import BASELINE, BlockTime, arm_k
from specscope.evaluate.choice import Rules
from specscope.evaluate.contrast import Estimate
from specscope.evaluate.crossover import (
    CLEAN,
    Crossover,
    Deploy,
    Side,
    SwapPair,
    crossover,
    deploys_of,
    swap_pairs,
)
from specscope.evaluate.flags import NOT_SWAPPED
from specscope.evaluate.multiplicity import bonferroni
from specscope.evaluate.objectives import METRICS
from specscope.evaluate.pairs import Pair
from specscope.evaluate.segments import Segment, load_bucket
from specscope.evaluate.sentences import describe
from specscope.evaluate.summary import summarise
from specscope.evaluate.verdicts import Verdict

Policies = Mapping[int, Mapping[str, Any]]
SAME = (
    "engine", "engine_version", "target", "quantisation", "tensor_parallel", "pipeline_parallel",
    "data_parallel", "expert_parallel", "gpu_type", "driver",
)  # fmt: skip
"""What both sides must share; the method, the draft and its length are what they may not."""

FLAGS = {
    "SAMPLE_RATIO": "the sides did not serve a fair share of the requests",
    NOT_SWAPPED: "no deploy tells the sides' hardware from what they ran",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One crossover's verdict, its pairs with a block a side, and the joint estimates."""

    verdict: Verdict
    pairs: tuple[Pair, ...]
    joint: Crossover


def sides_of(policies: Policies) -> dict[int, dict[str, Side]]:
    """The side of each replica, by the number of each policy that is a crossover."""
    found: dict[int, dict[str, Side]] = {}
    for number, body in policies.items():
        named = body.get("crossover")
        if isinstance(named, dict):
            sides: dict[str, Side] = {}
            for side in ("left", "right"):
                for replica in named.get(side) or ():
                    sides[str(replica)] = side
            found[number] = sides
    return found


def without_crossovers(blocks: Iterable[BlockTime], policies: Policies) -> list[BlockTime]:
    """Blocks of all other experiments."""
    numbers = sides_of(policies)
    return [block for block in blocks if block.policy not in numbers]


def judge_crossovers(
    blocks: Sequence[BlockTime],
    policies: Policies,
    boots: Iterable[Mapping[str, Any]],
    rules: Rules | None = None,
) -> list[Judged]:
    """A verdict for each crossover and each engine that it ran on. boots: rows of `boot`."""
    rules = rules or Rules()
    by_boot = {(boot["replica"], boot["boot"]): boot for boot in boots}
    judged = []
    for number, sides in sorted(sides_of(policies).items()):
        engines: dict[tuple[Any, ...], list[BlockTime]] = {}
        for block in blocks:
            boot = by_boot.get((block.replica, block.boot))
            if block.policy == number and boot is not None:
                kind = tuple(boot.get(name) for name in SAME)
                engines.setdefault(kind, []).append(_configured(block, boot))
        for _, mine in sorted(engines.items(), key=lambda item: str(item[0])):
            pairs, left_out = swap_pairs(mine, sides)
            judged.append(_judge(mine, pairs, left_out, rules))
    return judged


def _configured(block: BlockTime, boot: Mapping[str, Any]) -> BlockTime:
    """The block under the name of what its replica ran."""
    drafting = f"k{boot['k_max']}" if block.proposed else BASELINE
    return replace(block, arm=CLEAN if boot["method"] == "none" else drafting)


def _judge(
    blocks: Sequence[BlockTime],
    pairs: Sequence[SwapPair],
    left_out: Mapping[str, int],
    rules: Rules,
) -> Judged:
    both = [block for pair in pairs for block in (pair.left, pair.right)]
    objective = rules.objective or objectives.objective_for(
        "switchback", objectives.busy_share([block for block in blocks if block.wall_us])
    )
    deploys = deploys_of(pairs, objective)
    joint = crossover(deploys, bonferroni(rules.level, _contrasts(both)), looked_at_often=True)
    deciding = _deciding(joint)
    flags = _flags(pairs, joint, deciding)
    action, k = _action(deciding, flags, rules)
    decided = action not in ("inconclusive", "collect_baseline", "not_comparable")
    grade = "measured" if deciding and not flags and len(pairs) > 1 else "none"
    used = [deploy.contrast.pairs for deploy in deploys if deploy.contrast.se is not None]
    enough = min(used, default=0) >= rules.min_pairs
    confidence = "none" if not decided else "high" if enough and grade != "none" else "low"
    epoch = "+".join(sorted({block.epoch for block in blocks}))
    segment = _segment(both or blocks)
    rows = tuple(_row(pair, epoch, segment) for pair in pairs)
    names = sorted({block.arm for block in both})
    verdict = Verdict(
        epoch=epoch,
        segment=segment,
        action=action,
        k=k,
        grade=grade,
        confidence=confidence,
        reasons=tuple(_reasons(joint, deploys, flags, left_out, rules, len(pairs))),
        # Over `clean` last: where one stands for an arm, it is this.
        speedups=tuple(sorted(joint.estimates, key=lambda e: e.baseline == CLEAN)),
        metric=METRICS[objective],
        arms=tuple(found for name in names if (found := summarise(rows, name))),
        best=(),
        pairs=len(pairs),
        pairs_needed=None if enough else rules.min_pairs * max(2, len(deploys)),
        flags=flags,
        left_out=tuple(sorted(left_out.items())),
    )
    return Judged(verdict, rows, joint)


def _contrasts(blocks: Sequence[BlockTime]) -> int:
    """How many intervals must hold together: of each two configurations, and the hardware's."""
    ran = len({block.arm for block in blocks})
    return ran * (ran - 1) // 2 + 1


def _deciding(joint: Crossover) -> Estimate | None:
    """The best draft over the engine without speculation, or over k0 where none ran."""
    for baseline in (CLEAN, BASELINE):
        found = [e for e in joint.estimates if e.baseline == baseline and arm_k(e.arm)]
        if found:
            return max(found, key=lambda e: e.value)
    return None


def _action(found: Estimate | None, flags: Sequence[str], rules: Rules) -> tuple[str, int | None]:
    if flags:
        return "not_comparable", None
    if found is None:
        return "collect_baseline", None
    if found.within(rules.smallest_effect):
        return "no_difference", None
    if found.wins:
        return "keep", found.k
    return ("disable", 0) if found.loses else ("inconclusive", None)


def _reasons(
    joint: Crossover,
    deploys: Sequence[Deploy],
    flags: Sequence[str],
    left_out: Mapping[str, int],
    rules: Rules,
    pairs: int,
) -> list[str]:
    said = ["crossover by router: sides with fixed configurations, their traffic swapped"]
    said += [f"{flag}: {FLAGS[flag]}" for flag in flags]
    for one in joint.estimates:
        held = (one.arm, one.baseline) in joint.confounded
        said.append(describe(one) + ("; the sides' hardware is in it" if held else ""))
    if joint.hardware is not None:
        said.append(f"the sides' hardware alone: {describe(joint.hardware)}")
    elif joint.estimates:
        said.append("swap the configurations at the next deploy: then the hardware cancels")
    if not joint.estimates:
        said.append("no two sides ran different configurations in two pairs or more")
    tax = joint.of(BASELINE, CLEAN)
    if tax is not None and tax.loses:
        said.append(
            f"k = 0 in a speculative engine costs {1 - tax.value:.1%}: target-only traffic belongs "
            "on engines started without speculation"
        )
    for deploy in deploys:
        if deploy.contrast.pairs < rules.min_pairs:
            said.append(
                f"thin evidence: {deploy.left} and {deploy.right} have {deploy.contrast.pairs} of "
                f"{rules.min_pairs} pairs"
            )
    said += [f"{count} pairs left out: {reason}" for reason, count in left_out.items()]
    return said if pairs or left_out else [*said, "no pair of blocks yet"]


def _flags(
    pairs: Sequence[SwapPair], joint: Crossover, deciding: Estimate | None
) -> tuple[str, ...]:
    seen = []
    if _uneven(pairs):
        seen.append("SAMPLE_RATIO")
    if deciding is not None and (deciding.arm, deciding.baseline) in joint.confounded:
        seen.append(NOT_SWAPPED)
    return tuple(seen)


def _uneven(pairs: Sequence[SwapPair]) -> bool:
    """Whether one side surely got more requests, though each pair gave it both streams."""
    if len(pairs) < 2 or not all(p.left.requests and p.right.requests for p in pairs):
        return False
    ones = [1.0] * len(pairs)
    found = ratio.paired_log_ratio(
        [float(p.left.requests) / p.left.merged for p in pairs],
        ones,
        [float(p.right.requests) / p.right.merged for p in pairs],
        ones,
    )
    p_value = found.p_value()
    return p_value is not None and p_value < checks.SRM_LEVEL


def _segment(blocks: Sequence[BlockTime]) -> Segment:
    classes = {name for block in blocks for name in block.classes}
    offered = sum(b.requests for b in blocks) / max(1, sum(b.merged for b in blocks))
    return Segment(class_=classes.pop() if len(classes) == 1 else None, load=load_bucket(offered))


def _row(pair: SwapPair, epoch: str, segment: Segment) -> Pair:
    """A pair as reports draw it; where both sides ran alike, one of them stands for both."""
    policy, number = pair.key
    blocks = {side.arm: side for side in (pair.left, pair.right)}
    return Pair((epoch, policy, "crossover", "", number), blocks, {}, segment)
