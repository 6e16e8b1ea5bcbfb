"""The words of the GPU checks: a check, the place they run in, a record of rounds, a run."""

from dataclasses import dataclass

from specscope.engine.api import RequestInfo, RoundReport, SamplingParams
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import Pair

REHEARSALS = 2  # the first shows the shapes, the second how many copies of their graphs it takes
NO_GPU = "no GPU: not judged"


@dataclass
class Check:
    """One line: what was found, what was wanted, whether it holds (None: no budget, or skipped)."""

    name: str
    value: object
    budget: str = ""
    holds: bool | None = None
    note: str = ""

    def __str__(self) -> str:
        verified = {True: "PASS", False: "FAIL", None: "----"}[self.holds]
        value = f"{self.value:.4g}" if isinstance(self.value, float) else self.value
        wanted = f"  (wanted: {self.budget})" if self.budget else ""
        return f"{verified} {self.name}: {value}{wanted}  {self.note}".rstrip()


@dataclass
class Place:
    """Where, and with what."""

    device: str
    pair: Pair
    prompts: list[list[int]]
    tokens: int

    @property
    def gpu(self) -> bool:
        return self.device.startswith("cuda")

    def judged(self, name: str, value: object, budget: str, holds: bool, note: str = "") -> Check:
        """A check that means something on a GPU only; elsewhere its value shows that it runs."""
        if self.gpu:
            return Check(name, value, budget, holds, note)
        return Check(name, value, budget, None, f"{NO_GPU} {note}".rstrip())


class Record:
    """Keeps rounds and texts."""

    def __init__(self) -> None:
        self.rounds: list[RoundReport] = []
        self.texts: dict[str, list[int]] = {}

    def forget(self) -> None:
        self.rounds, self.texts = [], {}

    def round_begins(self) -> None:
        pass

    def round_ended(self, report: RoundReport) -> None:
        self.rounds.append(report)

    def admitted(self, request: RequestInfo) -> None:
        pass

    def ended(self, end: object) -> None:
        self.texts[end.request.id] = end.token_ids

    @property
    def steady(self) -> list[RoundReport]:
        """Rounds of all rows without prefill, the first few left out."""
        most = max(len(report.requests) for report in self.rounds)
        full = [r for r in self.rounds if len(r.requests) == most and not r.prefill_tokens]
        return full[min(8, len(full) // 4) :]


def decode(
    engine: Engine,
    prompts: list[list[int]],
    tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
) -> None:
    """Run a cohort to its end."""
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature, top_p, seed=index, max_new_tokens=tokens)
        engine.submit(str(index), prompt, params)
    while engine.step():
        pass


def rehearse(
    engine: Engine, record: Record, prompts: list[list[int]], tokens: int, **sampling: float
) -> None:
    """Run the cohort and capture the graphs it lacked, so that its next run is all replays."""
    for _ in range(REHEARSALS):
        decode(engine, prompts, tokens, **sampling)
        engine.capture()
    record.forget()
