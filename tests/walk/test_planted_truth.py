"""Costs planted in a real engine come out of the far end as arithmetic says.

The reference engine runs a tiny model with a replay drafter whose acceptance is known, on a clock
that target passes and drafts move by a known time; service and sidecar are processes. Three classes
of traffic differ in nothing but the planted cost.
"""

import time
from dataclasses import dataclass
from random import Random

import pytest
import torch
from evaluate.theory import tokens_per_round
from pipeline import Pipeline

from specscope.engine.api import RequestInfo, SamplingParams
from specscope.engine.decode.drafters.replay import ReplayDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.report.collect import collect
from specscope.store.connection import Store
from specscope.store.roll import roll
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.settings import HookSettings

K, RATE, PAIRS, OUTPUT = 4, 0.8, 8, 40
BETWEEN_MS, NOISE = 0.02, 0.02


@dataclass(frozen=True)
class Cost:
    """Milliseconds planted: in each target pass, in each further query position, in each draft."""

    target: float
    position: float
    draft: float

    def of(self, k: int) -> float:
        """Milliseconds planted in a round at draft length k."""
        return self.target + (k + 1) * self.position + k * self.draft


CONFIG = ModelConfig(
    vocab=61, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, ff=48, max_context=256
)
COSTS = {
    "cheap": Cost(target=8, position=0.0, draft=0.2),
    "slow draft": Cost(target=8, position=0.0, draft=16.0),
    "slow verify": Cost(target=0, position=20.0, draft=0.2),
}
EXPECTED = {"cheap": "set_k", "slow draft": "disable", "slow verify": "disable"}


class PlantedClock:
    """The engine's time: passes by what is planted, give or take, and a little at each reading."""

    def __init__(self):
        self._began_at, self._passed, self._rng = time.time_ns() - 600 * 10**9, 0, Random(1)

    def monotonic_ns(self):
        self._passed += int(BETWEEN_MS * 1e6)
        return self._passed

    def unix_ns(self):
        return self._began_at + self._passed

    def pass_ms(self, milliseconds):
        self._passed += int(1e6 * milliseconds * self._rng.gauss(1, NOISE))


class PlantedDrafter(ReplayDrafter):
    """Takes the time of the class at hand for each position that it drafts."""

    def __init__(self, clock):
        super().__init__({}, [RATE] * K, CONFIG.vocab)
        self.cost, self._clock = COSTS["cheap"], clock

    def propose(self, batch, ks):
        self._clock.pass_ms(self.cost.draft * max(ks))
        return super().propose(batch, ks)


class PlantedTarget:
    """A model's forward pass that takes the time of the class at hand."""

    def __init__(self, model, clock):
        self.cost, self._clock, self._forward = COSTS["cheap"], clock, model.forward
        model.forward = self

    def __call__(self, tokens, *args, **kwargs):
        self._clock.pass_ms(self.cost.target + self.cost.position * tokens.numel())
        return self._forward(tokens, *args, **kwargs)


def run_experiment(pipeline, model, names):
    """Pairs of k0 and k4 for each class; `names` gives each cost the label that it runs under."""
    prompt = list(range(1, 9))
    params = SamplingParams(temperature=0.0, mode="greedy", max_new_tokens=OUTPUT)
    completion = complete(model, prompt, params)
    clock = PlantedClock()
    drafter, target = PlantedDrafter(clock), PlantedTarget(model, clock)
    settings = HookSettings.from_env(pipeline.environment)
    boot = new_boot(settings, engine="reference", engine_version="test", target="tiny", k_max=K)
    ring, _ = attach(settings, boot)
    recorder = Recorder(ring, salt=b"planted", clock=clock)
    length = {"k": 0}
    engine = Engine(
        model,
        drafter,
        k_max=K,
        slots=1,
        capacity=128,
        gate=lambda rows, _: [length["k"]] * len(rows),
        observers=[ReferenceObserver(recorder)],
        clock=clock,
    )
    pair = 0
    for number in range(PAIRS):
        for cost, label in names.items():
            pair += 1
            drafter.cost = target.cost = COSTS[cost]
            for k in (0, K) if (number + pair) % 2 else (K, 0):
                length["k"] = k
                name = f"{pair}/{k}"
                drafter.completions = {name: completion}
                drafter.seed = pair
                recorder.block(1, pair, f"k{k}")
                engine.submit(name, prompt, params, label=label, session=str(pair))
                while engine.step():
                    pass
                recorder.block(0, 0, "")
    recorder.close()


def complete(model, prompt, params):
    ends = []
    engine = Engine(
        model,
        ReplayDrafter({}, [RATE] * K, model.config.vocab),
        k_max=K,
        slots=1,
        capacity=128,
        gate=lambda rows, _: [0] * len(rows),
        observers=[Ends(ends)],
    )
    engine.submit("alone", prompt, params)
    while engine.step():
        pass
    return ends[0].token_ids


class Ends:
    """Keeps how requests ended."""

    def __init__(self, ends):
        self.ended = ends.append

    def round_begins(self): ...

    def round_ended(self, report): ...

    def admitted(self, request: RequestInfo): ...


def walked(folder, names):
    torch.set_num_threads(1)  # two cores are shared with service and sidecar
    torch.manual_seed(3)
    model = Decoder(CONFIG).ready()
    pipeline = Pipeline(folder)
    try:
        pipeline.service()
        pipeline.agent()
        run_experiment(pipeline, model, names)
        pipeline.until(pipeline.shipped)
        pipeline.stop("agent")
        pipeline.stop("service")
        with Store.open(pipeline.store) as store:
            roll(store, everything=True)
            yield collect(store, title="planted")
            store.command(
                "ALTER TABLE block_time DELETE WHERE arm = 'k0' SETTINGS mutations_sync = 1"
            )
            yield collect(store, title="without a baseline")
    finally:
        pipeline.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """With every row, and with the rows of one arm deleted."""
    return list(walked(tmp_path_factory.mktemp("planted"), {name: name for name in COSTS}))


def round_ms(segment, k):
    (arm,) = [arm for arm in segment.arms if arm.k == k]
    return 1e3 * arm.tokens_per_round / arm.tokens_per_second


@pytest.mark.parametrize("name", ["slow draft", "slow verify"])
def test_a_planted_cost_moves_the_speedup_as_arithmetic_says(reports, name):
    segments = {segment.label: segment for segment in reports[0].segments}
    moved = {
        k: round_ms(segments["cheap"], k) + COSTS[name].of(k) - COSTS["cheap"].of(k) for k in (0, K)
    }

    _, arm = segments[name].arms

    assert arm.tokens_per_round == pytest.approx(tokens_per_round(K, RATE), rel=0.12)
    assert arm.speedup == pytest.approx(arm.tokens_per_round * moved[0] / moved[K], rel=0.12)


@pytest.mark.parametrize("name", COSTS)
def test_each_class_gets_the_verdict_that_its_cost_asks_for(reports, name):
    segment = next(s for s in reports[0].segments if s.label == name)

    assert segment.action == EXPECTED[name]


def test_with_the_baseline_rows_deleted_the_verdict_is_to_collect_one(reports):
    assert {segment.action for segment in reports[1].segments} == {"collect_baseline"}


def test_permuting_the_labels_permutes_the_verdicts(tmp_path):
    names = {"cheap": "slow draft", "slow draft": "slow verify", "slow verify": "cheap"}

    report = next(walked(tmp_path, names))

    actions = {segment.label: segment.action for segment in report.segments}
    assert actions == {names[cost]: action for cost, action in EXPECTED.items()}
