"""Real transformers: assisted generation and prompt lookup, round by round."""

from collections import defaultdict

import pytest
from hook_fakes import a_boot, drained

from specscope_hook.adapters.transformers import TransformersHook, transformers_boot
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.errors import NotSupported
from specscope_hook.payload import decode
from specscope_hook.recorder import Recorder
from specscope_hook.records import RingRequest, RingRound
from specscope_hook.ring import NAME_CLASS, Ring, RingReader
from specscope_hook.settings import HookSettings

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PROMPT = [[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]]


def a_model(layers: int, seed: int):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=256,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


class Rig:
    def __init__(self, directory):
        torch.set_num_threads(1)
        self.model = a_model(2, 0)
        self.ring = Ring.create(directory / "a.ring", a_boot(), 1 << 20)
        self.recorder = Recorder(self.ring, salt="s")
        self.reader = RingReader.open(self.ring.path)
        self.hook = TransformersHook(self.model, self.recorder)

    def generate(self, **values):
        plain = {"max_new_tokens": 40, "do_sample": False} | values
        return self.model.generate(torch.tensor(PROMPT), **plain)[0, len(PROMPT[0]) :].tolist()

    def records(self):
        kinds = defaultdict(list)
        for record in map(decode, drained(self.reader)[0]):
            kinds[type(record)].append(record)
        return kinds[RingRound], kinds[RingRequest]


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


WAYS = {
    "assistant": lambda: {"assistant_model": a_model(1, 1)},
    "itself": lambda: {"assistant_model": a_model(2, 0)},
    "prompt lookup": lambda: {"prompt_lookup_num_tokens": 4},
}


@pytest.mark.parametrize("way", WAYS)
def test_rounds_add_up_to_the_output_and_change_nothing(rig, way):
    plain = rig.generate()

    rig.hook.label = "sql"
    tokens = rig.generate(**WAYS[way]())

    rounds, (admitted, ended) = rig.records()
    assert tokens == plain
    assert rig.recorder.on
    assert sum(round_.emitted[0] for round_ in rounds) == len(tokens) == ended.output_tokens
    assert all(round_.accepted[0] <= round_.k[0] for round_ in rounds)
    assert all(round_.emitted[0] == round_.accepted[0] + 1 for round_ in rounds)
    contexts = [round_.contexts[0] for round_ in rounds]
    steps = [round_.emitted[0] for round_ in rounds]
    assert contexts == [len(PROMPT[0]) - 1 + sum(steps[:n]) for n in range(len(steps))]
    assert rounds[0].prefill_tokens == len(PROMPT[0]) - 1
    assert [round_.ends[0] for round_ in rounds] == [0] * (len(rounds) - 1) + [End.LENGTH]
    assert (admitted.prompt_tokens, admitted.requested_output) == (len(PROMPT[0]), 40)
    assert (ended.reason, ended.digest) == (End.LENGTH, token_digest(tokens))
    assert rig.reader.names(NAME_CLASS) == {0: "sql"}
    for round_ in rounds:
        parts = round_.draft_us + round_.verify_us + round_.sample_us + round_.idle_us
        assert parts == pytest.approx(round_.wall_us, rel=0.01)
        assert round_.verify_us > 0


def test_a_model_that_drafts_for_itself_has_every_proposal_kept(rig):
    rig.generate(assistant_model=a_model(2, 0), assistant_confidence_threshold=0.0)

    rounds, _ = rig.records()
    assert all(round_.accepted == round_.k for round_ in rounds[:-1])


def test_generation_without_an_assistant_is_not_recorded(rig):
    rig.generate()

    assert rig.records() == ([], [])
    assert rig.recorder.on


def test_a_fault_of_ours_detaches_and_generation_goes_on(rig, monkeypatch):
    plain = rig.generate()

    def broken(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(rig.hook, "_round_ends", broken)
    tokens = rig.generate(prompt_lookup_num_tokens=4)
    again = rig.generate(prompt_lookup_num_tokens=4)

    assert tokens == again == plain
    assert "planted" in rig.reader.fault_text


def test_a_call_that_fails_is_an_aborted_request(rig):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.generate(prompt_lookup_num_tokens=4, stopping_criteria=[stop])

    _, requests = rig.records()
    assert requests[-1].reason == End.ABORT


def test_a_removed_hook_leaves_the_model_as_it_was(rig):
    rig.hook.remove()

    rig.generate(prompt_lookup_num_tokens=4)

    assert rig.records() == ([], [])
    assert "generate" not in vars(rig.model)


def test_something_else_than_a_model_is_refused(rig):
    with pytest.raises(NotSupported, match="object has no"):
        TransformersHook(object(), rig.recorder)


def test_the_boot_record_counts_the_models_weights(rig):
    boot = transformers_boot(rig.model, HookSettings(None, "r0"), method="ngram")

    assert boot.parameters == sum(p.numel() for p in rig.model.parameters())
    assert (boot.bytes_per_weight, boot.layers, boot.method) == (4.0, 2, "ngram")
