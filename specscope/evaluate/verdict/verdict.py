"""The verdict and the codes in it. Standard library only.

The evaluator, the gate, `replay` and `analyze` all return a `Verdict`. It contains no sentence:
`words` turns actions, flags and reasons into English for every screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.segments import Segment

if TYPE_CHECKING:
    from specscope.evaluate.causes.diagnosis import CauseOdds, Diagnosis
    from specscope.evaluate.experiment.summary import ArmSummary


class Action(StrEnum):
    """The action for a kind of traffic."""

    KEEP = "keep"
    SET_K = "set_k"
    DISABLE = "disable"
    ROUTE = "route"
    NO_DIFFERENCE = "no_difference"
    COLLECT_BASELINE = "collect_baseline"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not_comparable"
    ENGINE_FAULT = "engine_fault"
    NO_DATA = "no_data"

    @property
    def gains(self) -> bool:
        """Whether the action means that speculation pays."""
        return self in (Action.KEEP, Action.SET_K)

    @property
    def fails(self) -> bool:
        """Whether the action means that speculation does not pay."""
        return self in _FAILS

    @property
    def settles(self) -> bool:
        """Whether the action answers the experiment's question."""
        return self.gains or self.fails


_FAILS = (Action.DISABLE, Action.NO_DIFFERENCE, Action.ROUTE, Action.ENGINE_FAULT)


class Grade(StrEnum):
    """The source of a number: pairs of blocks, a replay of one trace, a model, or nothing."""

    MEASURED = "measured"
    REPLAYED = "replayed"
    MODELLED = "modelled"
    NONE = "none"


class Confidence(StrEnum):
    """high: a gate may change on it. medium: it depends on an untested assumption. low: it is
    decided on too little evidence. none: it is not decided."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


class Flag(StrEnum):
    """A reason to distrust the input."""

    BASELINE_DRAFTS = "BASELINE_DRAFTS"
    INCONSISTENT_BASELINE = "INCONSISTENT_BASELINE"
    IMPOSSIBLE_COUNTS = "IMPOSSIBLE_COUNTS"
    OUTPUTS_DIFFER = "OUTPUTS_DIFFER"
    SAMPLE_RATIO = "SAMPLE_RATIO"
    TWINS_DIFFER = "TWINS_DIFFER"
    NOT_SWAPPED = "NOT_SWAPPED"
    NOT_DRAFTED = "NOT_DRAFTED"
    FAILURES = "FAILURES"
    LATE = "LATE"
    SYNTHETIC_PROMPTS = "SYNTHETIC_PROMPTS"
    LENGTHS_DIFFER = "LENGTHS_DIFFER"


# The action that a flag leaves of any other, and of those that would switch speculation on.
OVERRULES_ALL: Mapping[Flag, Action] = {
    Flag.SAMPLE_RATIO: Action.NOT_COMPARABLE,
    Flag.TWINS_DIFFER: Action.NOT_COMPARABLE,
    Flag.NOT_SWAPPED: Action.NOT_COMPARABLE,
    Flag.NOT_DRAFTED: Action.NOT_COMPARABLE,
    Flag.FAILURES: Action.NOT_COMPARABLE,
    Flag.LENGTHS_DIFFER: Action.NOT_COMPARABLE,
}
OVERRULES_GAINS: Mapping[Flag, Action] = {
    Flag.IMPOSSIBLE_COUNTS: Action.ENGINE_FAULT,
    Flag.OUTPUTS_DIFFER: Action.ENGINE_FAULT,
    Flag.BASELINE_DRAFTS: Action.NOT_COMPARABLE,
}


class Metric(StrEnum):
    """A metric of a tradeoff. More is worse, except for the cache, of which less is worse."""

    TOKEN_TIME_P95 = "token_time_p95_ms"
    TOKEN_TIME_MEAN = "token_time_mean_ms"
    WALL_TIME = "wall_ms_per_token"
    DEVICE_TIME = "device_ms_per_token"
    PREEMPTIONS = "preemptions_per_request"
    CACHE = "cache_tokens"


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """One metric of an arm and of its baseline, in the metric's unit.

    ratio: > 1 is worse. It is arm over baseline, and baseline over arm for the cache. low, high:
    its interval, None if unknown; both equal the ratio if the configuration fixes it.
    """

    metric: Metric
    arm: str
    baseline: str
    before: float
    after: float
    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def worsens(self) -> bool:
        """Whether it gets worse, with confidence."""
        return self.low is not None and self.low > 1.0


class Why(StrEnum):
    """The code of a reason. `words.REASONS` has the sentence and names the numbers of each."""

    NO_BASELINE = "no_baseline"
    NO_ARM = "no_arm"
    TIME_UNKNOWN = "time_unknown"
    UNDECIDED = "undecided"
    NO_GAIN = "no_gain"
    SURELY_SLOWER = "surely_slower"
    ALL_LOSE = "all_lose"
    CURRENT_LOSES = "current_loses"
    NOT_IN_FORCE = "not_in_force"
    NONE_WITHIN_ALLOWANCE = "none_within_allowance"
    BEYOND_ALLOWANCE = "beyond_allowance"
    RIVALS = "rivals"
    BREAK_EVEN = "break_even"
    PAIRS_NEEDED = "pairs_needed"
    THIN = "thin"
    THIN_OUTPUTS = "thin_outputs"
    LEFT_OUT = "left_out"
    OUTPUTS = "outputs"
    CAUSE = "cause"
    CAUSES = "causes"
    NO_SINGLE_FIX = "no_single_fix"
    BACKLOG = "backlog"
    CROSSING = "crossing"
    CROSSOVER = "crossover"
    LOSSY = "lossy"
    HARDWARE = "hardware"
    HARDWARE_INCLUDED = "hardware_included"
    SWAP_NEXT = "swap_next"
    NO_CONTRAST = "no_contrast"
    IDLE_SPECULATION = "idle_speculation"
    NO_PAIRS = "no_pairs"
    AMBIGUOUS = "ambiguous"
    UNDECLARED = "undeclared"
    DRAFTED_LESS = "drafted_less"
    WORSENS = "worsens"
    REPLAY_GAIN = "replay_gain"
    FEW_REQUESTS = "few_requests"
    FEW_PARTS = "few_parts"
    BASELINE_BLOCKS = "baseline_blocks"
    FOLLOWED_PAIRS = "followed_pairs"
    REMEDY = "remedy"
    REPAIR = "repair"
    BETTER_DRAFT = "better_draft"


Value = float | int | str | bool | None | tuple[str, ...] | tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason of a verdict: a code, its arm, and its numbers.

    code: a member of `Why`, or of another documented list. arm: None if it is about all arms.
    """

    code: str
    arm: str | None = None
    numbers: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.numbers[name]


def because(code: str, arm: str | None = None, **numbers: Value) -> Reason:
    """Build a reason; keyword arguments are its numbers."""
    return Reason(code, arm, numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one segment of one epoch.

    k: draft length to run; None if undecided or if a table runs. arm: the arm to run, which may be
    a table's; None if there is none. current: the draft length in force; None if unknown. pairs:
    pairs of the best-covered arm, or requests of a replay. pairs_needed: total for a decision or
    for enough evidence; None if there are enough, or if unknown. best: arms that do not differ from
    the fastest with confidence. left_out: number of dropped pairs, by code. diagnoses: diagnosis of
    every arm. cause_odds: competing causes of the smallest loss, with their odds; primary: the
    named cause. Both are empty if speculation does not lose. tradeoffs: every arm's other metrics
    against k0. between: each two arms against each other. scope: further properties of the traffic
    in the input.
    """

    epoch: str = ""
    segment: Segment = field(default_factory=Segment)
    action: Action
    k: int | None = None
    arm: str | None = None
    current: int | None = None
    grade: Grade = Grade.NONE
    confidence: Confidence = Confidence.NONE
    metric: str = ""
    pairs: int = 0
    reasons: tuple[Reason, ...] = ()
    speedups: tuple[Estimate, ...] = ()
    arms: tuple[ArmSummary, ...] = ()
    best: tuple[str, ...] = ()
    pairs_needed: int | None = None
    flags: tuple[Flag, ...] = ()
    left_out: tuple[tuple[LeftOut, int], ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    primary: str | None = None
    cause_odds: tuple[CauseOdds, ...] = ()
    tradeoffs: tuple[Tradeoff, ...] = ()
    between: tuple[Estimate, ...] = ()
    scope: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def applicable(self) -> bool:
        """Whether a gate may change on this verdict."""
        return self.grade is Grade.MEASURED and self.confidence is Confidence.HIGH
