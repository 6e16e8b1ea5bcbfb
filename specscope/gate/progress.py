"""Progress of an experiment: pairs, verdicts so far, cost, and compliance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specscope import queries
from specscope.assess import Assessment, deciding
from specscope.evaluate.experiment.blocks import BlockTime, arm_k
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.shared_batch import ClassTimes
from specscope.evidence.read import read_blocks
from specscope.gate.in_question import open_line, tables_in_question
from specscope.policy.arms import table_of_arm
from specscope.policy.stored import StoredPolicy, with_table
from specscope.policy.table import GateTable
from specscope.queries.period import since_condition
from specscope.store.connection import Store

FEW_ROWS = 32  # sequences of rounds, below which nobody can say what an arm drafts
MIN_PAIRS = Rules().min_pairs
EDGE = 0.05  # share of proposals per sequence that rounds at a block's edge may explain


class Stage(StrEnum):
    """The stage of an experiment."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ExperimentCost:
    """Capacity that the arms cost compared with one of them. [share of the blocks so far; < 0 is a
    gain]

    against: the arm of comparison. spent: the cost as a share of the whole planned window; None if
    the window has no end. pairs: number of pairs behind it.
    """

    share: float
    against: str
    pairs: int
    spent: float | None


@dataclass(frozen=True, slots=True)
class SegmentProgress:
    """A segment's verdict so far. speedup, low, high: of `arm`; None if unknown.

    in_question: a line for each table that ran as an arm and may still be the best; while there is
    one, the segment has no answer.
    """

    label: str
    context: str
    output: str
    load: str
    action: str
    confidence: str
    settled: bool
    pairs: int
    pairs_needed: int | None
    arm: str | None
    speedup: float | None
    low: float | None
    high: float | None
    in_question: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """One look at an experiment. begins_at, ends_at, at: ns since 1970; ends_at None: no end.

    pairs: complete pairs of all replicas. planned: None if the experiment has no end or no replica
    ran yet. classes: times of each class in a shared batch. silent: known replicas without a round
    for one block length. disobeyed: a sentence for each replica that does not run its arm.
    """

    policy: int
    arms: tuple[str, ...]
    author: str
    stage: Stage
    at: int
    begins_at: int
    ends_at: int | None
    replicas: int
    pairs: int
    planned: int | None
    segments: tuple[SegmentProgress, ...]
    classes: tuple[ClassTimes, ...]
    cost: ExperimentCost | None
    silent: tuple[str, ...]
    disobeyed: tuple[str, ...]

    @property
    def decided(self) -> bool:
        """Whether every segment has an answer on which a gate may change."""
        return bool(self.segments) and all(one.settled for one in self.segments)

    @property
    def exhausted(self) -> bool:
        """Whether more pairs of this window change no answer.

        Some segment has its answer, and each other one is too rare to reach the fewest pairs of a
        verdict before the end.
        """
        waiting = [one for one in self.segments if not one.settled]
        if len(waiting) == len(self.segments):
            return False
        return not waiting or (
            self.planned is not None
            and self.pairs > 0
            and all(one.pairs * self.planned / self.pairs < MIN_PAIRS for one in waiting)
        )

    @property
    def left_s(self) -> float | None:
        """Seconds to its end; 0 when it is over, None if it has none."""
        if self.stage in (Stage.ENDED, Stage.STOPPED):
            return 0.0
        return None if self.ends_at is None else max(0.0, (self.ends_at - self.at) / 1e9)


def experiments(policies: Sequence[StoredPolicy]) -> list[StoredPolicy]:
    """The policies that run blocks, oldest first."""
    return [policy for policy in with_table(policies) if policy.span is not None]


def progress(
    store: Store,
    policies: Sequence[StoredPolicy],
    experiment: StoredPolicy,
    judged: Assessment | None,
    now: int,
) -> ExperimentProgress:
    """Read the progress once. judged: assessment of the store's evidence; None before any.

    now: ns since 1970. Raises StoreError if the store cannot be read.
    """
    assert experiment.span is not None
    begins_at, ends_at = experiment.span
    names = tuple(arm["name"] for arm in experiment.body["arms"])
    blocks, _ = read_blocks(store, f"policy = {experiment.number}")
    ran = whole_pairs(blocks, names)
    replicas = {(block.replica, block.boot) for block in blocks}
    first, last = experiment.body["first_pair"], experiment.body.get("last_pair")
    planned = None if last is None or not replicas else (last - first + 1) * len(replicas)
    stage = _stage(policies, experiment, now)
    block_ns = int(experiment.body["block_ms"]) * 10**6
    running = stage is Stage.RUNNING and now - begins_at > block_ns
    silent, disobeyed = _listeners(store, experiment, now, block_ns) if running else ((), ())
    return ExperimentProgress(
        policy=experiment.number,
        arms=names,
        author=experiment.author,
        stage=stage,
        at=now,
        begins_at=begins_at,
        ends_at=ends_at,
        replicas=len(replicas),
        pairs=len(ran),
        planned=planned,
        segments=_segments(judged, blocks, set(names) - {incumbent(experiment)}),
        classes=_classes(judged, blocks),
        cost=cost_so_far(list(ran.values()), incumbent(experiment), planned),
        silent=silent,
        disobeyed=disobeyed,
    )


def whole_pairs(
    blocks: Sequence[BlockTime], arms: Sequence[str]
) -> dict[tuple[str, str, int], dict[str, BlockTime]]:
    """Blocks by (replica, boot, pair) and arm, of the pairs that ran every arm."""
    pairs: dict[tuple[str, str, int], dict[str, BlockTime]] = defaultdict(dict)
    for block in blocks:
        if block.void is None:
            pairs[block.replica, block.boot, block.pair][block.arm] = block
    return {key: ran for key, ran in pairs.items() if set(arms) <= set(ran)}


def incumbent(experiment: StoredPolicy) -> str | None:
    """The arm that equals the table in force; None if there is none."""
    names = [arm["name"] for arm in experiment.body["arms"]]
    same = (n for n in names if table_of_arm(experiment.body, n) == experiment.table)
    return next(same, None)


def cost_so_far(
    pairs: Sequence[Mapping[str, BlockTime]], against: str | None, planned: int | None
) -> ExperimentCost | None:
    """Additional time of the other arms for their tokens, compared with one arm.

    against: that arm; None takes the fastest, which makes the cost an upper limit. planned: pairs
    of the whole window. None before any pair has tokens.
    """
    yielded = [ran for ran in pairs if all(b.emitted and b.wall_us for b in ran.values())]
    if not yielded:
        return None
    arms = sorted(yielded[0])
    us = {arm: sum(ran[arm].wall_us for ran in yielded) for arm in arms}
    per_token = {arm: us[arm] / sum(ran[arm].emitted for ran in yielded) for arm in arms}
    chosen = against if against in per_token else min(arms, key=lambda arm: per_token[arm])
    lost = sum(
        block.wall_us - block.emitted * ran[chosen].wall_us / ran[chosen].emitted
        for ran in yielded
        for arm, block in ran.items()
        if arm != chosen
    )
    share = lost / sum(us.values())
    return ExperimentCost(
        share=share,
        against=chosen,
        pairs=len(yielded),
        spent=share * len(yielded) / planned if planned else None,
    )


def _stage(policies: Sequence[StoredPolicy], experiment: StoredPolicy, now: int) -> Stage:
    assert experiment.span is not None
    begins_at, ends_at = experiment.span
    later = [one.created_at for one in with_table(policies) if one.number > experiment.number]
    if later and (ends_at is None or later[0] < ends_at):
        return Stage.STOPPED
    if experiment.ended(now):
        return Stage.ENDED
    return Stage.WAITING if now < begins_at else Stage.RUNNING


def _segments(
    judged: Assessment | None, blocks: Sequence[BlockTime], rivals: set[str]
) -> tuple[SegmentProgress, ...]:
    """rivals: arms that do not run the table in force."""
    epochs = {block.epoch for block in blocks}
    if judged is None:
        return ()
    found = []
    for verdict, answer in zip(judged.verdicts, judged.segments, strict=True):
        if verdict.epoch not in epochs:
            continue
        one = deciding(verdict)
        tables = tables_in_question(verdict, sorted(rivals))
        found.append(
            SegmentProgress(
                label=answer.label,
                context=answer.context,
                output=answer.output,
                load=answer.load,
                action=answer.action,
                confidence=answer.confidence,
                settled=verdict.applicable and verdict.action.settles and not tables,
                pairs=verdict.pairs,
                pairs_needed=verdict.pairs_needed,
                arm=one.arm if one else None,
                speedup=one.value if one else None,
                low=one.low if one else None,
                high=one.high if one else None,
                in_question=tuple(open_line(*table) for table in tables.items()),
            )
        )
    return tuple(found)


def _classes(judged: Assessment | None, blocks: Sequence[BlockTime]) -> tuple[ClassTimes, ...]:
    epochs = {block.epoch for block in blocks}
    times = judged.class_times if judged else ()
    return tuple(one for one in times if one.epoch in epochs)


def _listeners(
    store: Store, experiment: StoredPolicy, now: int, block_ns: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Replicas with rounds in the last hour but not in the last block length, and sentences on
    replicas that do not run their arm."""
    assert experiment.span is not None
    hour = since_condition("started_at", now - max(3600 * 10**9, 2 * block_ns))
    number, silent, disobeyed = experiment.number, [], []
    for row in store.rows(queries.policies_followed(hour)):
        replica, policy = row["replica"], row["policy"]
        if now - row["last_at"] > block_ns:
            silent.append(replica)
        elif policy != number:
            runs = "no policy" if policy is None else f"policy {policy}"
            disobeyed.append(f"{replica} runs {runs}, not {number}")
    ran = f"policy = {number} AND {since_condition('started_at', experiment.span[0])}"
    for row in store.rows(queries.arms_drafted(ran)):
        table = table_of_arm(experiment.body, row["arm"])
        if table is not None and (line := _unlike(row, table)):
            disobeyed.append(line)
    return tuple(silent), tuple(disobeyed)


def _unlike(row: Mapping[str, Any], table: GateTable) -> str | None:
    """A sentence if an arm drafted more than its table allows, or nothing although its table asks
    for drafts; otherwise None."""
    k, sequences, proposed = arm_k(row["arm"]), row["sequences"], row["proposed"]
    if sequences < FEW_ROWS:
        return None
    name = row["arm"] if k is None else f"k = {k}"
    longest = table.k_max
    if proposed > (longest + EDGE) * sequences:
        more = "" if k == 0 else f", which allows {longest}"
        drafted = f"{proposed / sequences:.1f} tokens per round"
        return f"{row['replica']} drafts {drafted} under {name}{more}"
    if longest and not proposed:
        classes = "" if k is not None else ": does it get traffic of the classes that draft?"
        return f"{row['replica']} drafted nothing under {name}{classes}"
    return None
