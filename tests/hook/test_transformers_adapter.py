"""Real transformers: what the hook records of `generate` against what transformers itself did."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers_rig import PROMPT, Rig, Tally, a_model  # noqa: E402

from specscope_hook.adapters.transformers import TransformersHook, transformers_boot  # noqa: E402
from specscope_hook.adapters.transformers_call import Call  # noqa: E402
from specscope_hook.columns import End  # noqa: E402
from specscope_hook.digest import token_digest  # noqa: E402
from specscope_hook.errors import NotSupported  # noqa: E402
from specscope_hook.recorder import Recorder  # noqa: E402
from specscope_hook.ring import NAME_ADAPTER, NAME_CLASS  # noqa: E402
from specscope_hook.settings import HookSettings  # noqa: E402


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def an_assistant(layers=1, seed=1, **values):
    model = a_model(layers, seed)
    for name, value in values.items():
        setattr(model.generation_config, name, value)
    return {"assistant_model": model}


WAYS = {
    "assistant": lambda: an_assistant(),
    "itself": lambda: an_assistant(2, 0),
    "confident assistant": lambda: an_assistant(2, 0, assistant_confidence_threshold=0.03),
    "heuristic schedule": lambda: an_assistant(
        2, 0, num_assistant_tokens_schedule="heuristic", num_assistant_tokens=3,
        assistant_confidence_threshold=0.0,
    ),
    "transient schedule": lambda: an_assistant(
        num_assistant_tokens_schedule="heuristic_transient", num_assistant_tokens=5
    ),
    "prompt lookup": lambda: {"prompt_lookup_num_tokens": 4},
    "plain": dict,
}  # fmt: skip
SAMPLED = {"do_sample": True, "temperature": 0.9, "top_p": 0.95}


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("way", WAYS)
def test_rounds_are_what_transformers_did(rig, monkeypatch, way, sampling):
    tally = Tally(rig.model, monkeypatch)
    rig.hook.label = "sql"
    torch.manual_seed(7)

    tokens = rig.generate(streamer=tally, **WAYS[way](), **sampling)

    rounds, (admitted, ended) = rig.records()
    turns = tally.turns
    assert rig.recorder.on
    assert tally.tokens == tokens
    assert [r.contexts[0] for r in rounds] == [turn.context - 1 for turn in turns]
    assert [r.k[0] for r in rounds] == [len(turn.proposed) for turn in turns]
    assert [r.accepted[0] for r in rounds] == [turn.accepted for turn in turns]
    assert [r.emitted[0] for r in rounds] == [len(turn.emitted) for turn in turns]
    queries = [r.k[0] + 1 + r.prefill_tokens for r in rounds]
    assert queries == tally.queries
    assert [r.ends[0] for r in rounds] == [0] * (len(rounds) - 1) + [End.LENGTH]
    assert {r.requests[0] for r in rounds} == {admitted.request}
    assert (admitted.prompt_tokens, admitted.requested_output) == (len(PROMPT), 40)
    assert (admitted.temperature > 0) == bool(sampling)
    assert (ended.reason, ended.output_tokens) == (End.LENGTH, len(tokens))
    assert ended.digest == token_digest(tokens)
    assert rig.reader.names(NAME_CLASS) == {0: "sql"}


@pytest.mark.parametrize("way", WAYS)
def test_the_hook_changes_no_text(rig, way):
    hooked = rig.generate(**WAYS[way]())
    rig.hook.remove()

    assert rig.generate(**WAYS[way]()) == hooked


def a_stop_within(tokens: list[int], at: int) -> int:
    """A token that comes first no earlier than at a position; the end of the text from there."""
    return next(token for n, token in enumerate(tokens) if n >= at and token not in tokens[:n])


@pytest.mark.parametrize("way", ["itself", "prompt lookup", "plain"])
def test_an_end_of_text_within_accepted_candidates_is_an_accepted_one(rig, monkeypatch, way):
    stop = a_stop_within(rig.generate(), 9)
    before = len(rig.records()[0])
    tally = Tally(rig.model, monkeypatch)

    tokens = rig.generate(streamer=tally, eos_token_id=stop, **WAYS[way]())

    rounds, requests = rig.records()
    rounds, last = rounds[before:], tally.turns[-1]
    assert tokens[-1] == stop
    assert [r.accepted[0] for r in rounds] == [turn.accepted for turn in tally.turns]
    assert [r.emitted[0] for r in rounds] == [len(turn.emitted) for turn in tally.turns]
    assert (rounds[-1].ends[0], requests[-1].reason) == (End.EOS, End.EOS)
    if way == "itself":
        assert last.proposed[-1] == stop
        assert last.accepted == len(last.emitted)


def test_a_length_limit_within_accepted_candidates_crops_them(rig, monkeypatch):
    tally = Tally(rig.model, monkeypatch)
    monkeypatch.setattr(type(rig.model), "forward", echo(type(rig.model).forward, PROMPT[:4]))

    tokens = rig.generate(streamer=tally, prompt_lookup_num_tokens=8, max_new_tokens=5)

    ((round_,), (_, ended)), (turn,) = rig.records(), tally.turns
    assert tokens == [7, 8, 5, 6, 7]
    assert (round_.k, turn.accepted) == ([8], 5)
    assert (round_.accepted, round_.emitted, round_.ends) == ([5], [5], [End.LENGTH])
    assert ended.reason == End.LENGTH


def echo(forward, text):
    """A forward pass after which the next token of a text, over and over, is the likeliest."""

    def run(self, input_ids=None, **named):
        result = forward(self, input_ids=input_ids, **named)
        kept = result.logits.shape[1]
        end = named["cache"].get_seq_length()
        for place, after in enumerate(range(end - kept, end)):
            result.logits[0, place, text[(after + 1) % len(text)]] += 1e4
        return result

    return run


class Costs:
    """A clock that passes only by what is done: 10 ms a forward pass of the target, 3 of the
    assistant, 1 a look of a processor at logits, 0.5 a look at the stopping criteria."""

    def __init__(self, rig, monkeypatch):
        self.now = 1_000_000_000
        self.fail_at = -1
        self.passes = 0
        monkeypatch.setattr("specscope_hook.clock.SystemClock.monotonic_ns", lambda *_: self.now)
        rig.model.lm_head.register_forward_hook(lambda *_: self._target())

    def _target(self):
        self.passes += 1
        self.spend(10)
        if self.passes == self.fail_at:
            raise RuntimeError("planted")

    def spend(self, ms):
        self.now += round(ms * 1e6)

    def assistant(self):
        model = a_model(1, 1)
        model.lm_head.register_forward_hook(lambda *_: self.spend(3))
        return {"assistant_model": model}

    def arguments(self):
        def look(input_ids, scores):
            self.spend(1)
            return scores

        def stop(input_ids, scores, **_):
            self.spend(0.5)
            return torch.zeros(1, dtype=torch.bool)

        return {"logits_processor": [look], "stopping_criteria": [stop]}


def test_the_parts_of_a_round_are_the_time_spent_in_them_and_add_up_to_its_wall(rig, monkeypatch):
    costs = Costs(rig, monkeypatch)

    rig.generate(**costs.assistant(), **costs.arguments())

    rounds, (_, ended) = rig.records()
    began = costs.now - sum(round(r.wall_us * 1e3) for r in rounds) - 500_000
    assert began == 1_000_000_000  # nothing of the call is in no round, but its last look
    for n, r in enumerate(rounds):
        k = r.k[0]
        assert r.draft_us == pytest.approx(k * 4000)
        assert r.verify_us == pytest.approx(10_000)
        assert r.sample_us == pytest.approx((k + 1) * 1000)
        assert r.idle_us == pytest.approx(500 if n else 0, abs=0.01)
    assert ended.ttft_ms == pytest.approx(rounds[0].wall_us / 1e3)
    assert ended.decode_ms == pytest.approx(sum(r.wall_us for r in rounds[1:]) / 1e3)
    assert ended.e2e_ms == pytest.approx((costs.now - began) / 1e6)


def test_a_plain_calls_rounds_take_the_whole_of_it(rig, monkeypatch):
    costs = Costs(rig, monkeypatch)

    rig.generate(**costs.arguments())

    rounds, (_, ended) = rig.records()
    for r in rounds:
        assert (r.draft_us, r.verify_us, r.sample_us) == (0, 10_000, 1500)
        assert r.idle_us == pytest.approx(0, abs=0.01)
    assert sum(r.wall_us for r in rounds) / 1e3 == pytest.approx(ended.e2e_ms)


def test_a_call_that_failed_leaves_no_time_to_the_next(rig, monkeypatch):
    costs = Costs(rig, monkeypatch)
    values = costs.assistant() | costs.arguments()
    costs.fail_at = 3
    with pytest.raises(RuntimeError, match="planted"):
        rig.generate(**values)
    rounds, requests = rig.records()
    failed = len(rounds)
    made = sum(r.emitted[0] for r in rounds)

    rig.generate(**values)

    rounds, later = rig.records()
    assert failed == 2
    assert (requests[-1].reason, requests[-1].output_tokens) == (End.ABORT, made)
    assert requests[-1].digest == 0
    for r in rounds[failed:]:
        assert r.draft_us == pytest.approx(r.k[0] * 4000)
        assert r.verify_us == pytest.approx(10_000)
    assert later[-1].reason == End.LENGTH


def test_a_call_that_fails_on_its_prompt_is_an_aborted_request_without_rounds(rig, monkeypatch):
    costs = Costs(rig, monkeypatch)
    costs.fail_at = 1

    with pytest.raises(RuntimeError, match="planted"):
        rig.generate()

    rounds, (_, ended) = rig.records()
    assert (rounds, ended.reason, ended.output_tokens) == ([], End.ABORT, 0)
    assert ended.ttft_ms != ended.ttft_ms


@pytest.mark.parametrize("way", ["prompt lookup", "plain"])
def test_a_call_that_is_stopped_from_without_is_recorded_as_it_ended(rig, way):
    def stop(input_ids, scores, **_):
        return torch.tensor([input_ids.shape[1] >= len(PROMPT) + 7])

    tokens = rig.generate(stopping_criteria=[stop], **WAYS[way]())

    rounds, (_, ended) = rig.records()
    assert sum(r.emitted[0] for r in rounds) == len(tokens) == ended.output_tokens
    assert (rounds[-1].ends[0], ended.reason) == (End.STOP, End.STOP)


@pytest.mark.parametrize("within", ["early exit", "the same object"])
def test_a_model_that_calls_itself_to_draft_is_one_call(rig, monkeypatch, within):
    tally = Tally(rig.model, monkeypatch)
    way = {"assistant_early_exit": 1}
    if within == "the same object":
        way = {"assistant_model": rig.model}

    tokens = rig.generate(streamer=tally, **way)

    rounds, (_, ended) = rig.records()
    assert rig.recorder.on
    assert [r.k[0] for r in rounds] == [len(turn.proposed) for turn in tally.turns]
    assert [r.accepted[0] for r in rounds] == [turn.accepted for turn in tally.turns]
    assert sum(r.emitted[0] for r in rounds) == len(tokens) == ended.output_tokens
    assert len(tally.queries) > len(rounds)  # of which only these are rounds'
    if within == "the same object":
        assert all(r.accepted == r.k for r in rounds[:-1])


def test_every_call_is_a_request_of_its_own(rig):
    with rig.hook.request(label="sql", id="a"):
        first = rig.generate(prompt_lookup_num_tokens=4)
        second = rig.generate(max_new_tokens=5)
    with rig.hook.request(id="b"):
        rig.generate(max_new_tokens=3)

    rounds, requests = rig.records()
    ended = [each for each in requests if each.ended_at]
    assert [each.output_tokens for each in ended] == [len(first), len(second), 3]
    assert len({each.request for each in ended}) == 3
    assert ended[0].request == rig.recorder.request_hash("a")
    assert ended[2].request == rig.recorder.request_hash("b")
    assert [each.class_ for each in ended] == [0, 0, 1]
    assert rig.reader.names(NAME_CLASS) == {0: "sql", 1: "unlabelled"}
    for each in ended:
        made = sum(r.emitted[0] for r in rounds if r.requests == [each.request])
        assert made == each.output_tokens


def test_threads_that_generate_at_once_do_not_mix(rig):
    texts: dict[str, list[int]] = {}
    together = threading.Barrier(3, timeout=300)

    def serve(name, **way):
        prompt = [(7 * int(name) + n) % 60 for n in range(12)]
        together.wait()
        for turn in range(3):
            with rig.hook.request(label=name, id=f"{name}-{turn}"):
                texts[f"{name}-{turn}"] = rig.generate(prompt, **way)

    ways = [WAYS["prompt lookup"](), WAYS["itself"](), {}]
    threads = [
        threading.Thread(target=serve, args=(str(n),), kwargs=way) for n, way in enumerate(ways)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rounds, requests = rig.records()
    assert rig.recorder.on
    ended = {each.request: each for each in requests if each.ended_at}
    names = rig.reader.names(NAME_CLASS)
    assert len(texts) == len(ended) == 9
    for id_, tokens in texts.items():
        request = rig.recorder.request_hash(id_)
        own = [r for r in rounds if r.requests == [request]]
        assert sum(r.emitted[0] for r in own) == ended[request].output_tokens == len(tokens)
        assert ended[request].digest == token_digest(tokens)
        assert {names[r.classes[0]] for r in own} == {id_[0]}


def test_batches_and_beams_pass_unrecorded(rig):
    two = torch.tensor([PROMPT, PROMPT])
    rig.model.generate(two, max_new_tokens=3, do_sample=False)
    rig.generate(num_beams=2, max_new_tokens=3)
    with pytest.raises(ValueError, match="batch_size"):
        rig.model.generate(two, max_new_tokens=3, prompt_lookup_num_tokens=2)

    assert rig.records() == ([], [])
    assert rig.recorder.on


def test_a_cache_handed_in_is_prompt_that_is_there_already(rig):
    values = {"max_new_tokens": 6, "do_sample": False}
    first = rig.model.generate(torch.tensor([PROMPT]), return_dict_in_generate=True, **values)
    more = torch.cat([first.sequences, torch.tensor([[9, 10, 11]])], dim=1)

    rig.model.generate(more, cache=first.cache, prompt_lookup_num_tokens=3, **values)

    rounds, requests = rig.records()
    second = [r for r in rounds if r.requests == [requests[-1].request]]
    cached = len(PROMPT) + 5  # the last token's keys are not there yet
    assert (requests[-1].prompt_tokens, requests[-1].cached_tokens) == (more.shape[1], cached)
    assert requests[-1].content == 0
    assert (second[0].contexts, second[0].prefill_tokens) == ([more.shape[1] - 1], 3)


def test_requests_that_must_have_one_output_share_their_content(rig):
    other_prompt = PROMPT[:-1]

    def content(prompt=PROMPT, **values):
        rig.generate(prompt, **({"max_new_tokens": 4} | values))
        return rig.records()[1][-1].content

    plain = content()
    assert plain != 0
    assert plain == content(prompt_lookup_num_tokens=3) == content(**an_assistant())
    assert plain == content(output_scores=True, cache_implementation="static")
    others = [
        content(other_prompt),
        content(max_new_tokens=5),
        content(repetition_penalty=1.2),
        content(eos_token_id=3),
        content(suppress_tokens=[4]),
    ]
    assert len({plain, *others}) == 6
    assert content(**SAMPLED) == 0
    assert content(max_time=1e6) == 0
    assert content(logits_processor=[lambda _, scores: scores]) == 0
    assert content(stopping_criteria=[lambda *_, **__: torch.tensor([False])]) == 0
    assert content(prefix_allowed_tokens_fn=lambda *_: [3, 4]) == 0
    assert rig.records()[1][-1].guided == 1


def test_the_same_salt_gives_the_same_content(tmp_path):
    found = []
    for name, salt in (("a", "s"), ("b", "s"), ("c", "other")):
        (tmp_path / name).mkdir()
        rig = Rig(tmp_path / name)
        rig.recorder = Recorder(rig.ring, salt=salt)
        rig.hook.remove()
        rig.hook = TransformersHook(rig.model, rig.recorder)
        rig.generate(max_new_tokens=3)
        found.append(rig.records()[1][-1].content)

    assert found[0] == found[1] != found[2]
    assert 0 not in found


def test_an_encoders_input_is_no_text_to_compare(tmp_path):
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2,
        decoder_start_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    rig = Rig(tmp_path, model)

    result = model.generate(torch.tensor([PROMPT]), max_new_tokens=9, prompt_lookup_num_tokens=3)

    rounds, (_, ended) = rig.records()
    assert ended.content == 0
    assert sum(r.emitted[0] for r in rounds) == ended.output_tokens == result.shape[1] - 1 == 9


def test_embeddings_as_prompt_have_a_length_and_no_content(rig):
    embedded = rig.model.get_input_embeddings()(torch.tensor([PROMPT])).detach()

    result = rig.model.generate(inputs_embeds=embedded, max_new_tokens=6, do_sample=False)

    rounds, (admitted, ended) = rig.records()
    assert (admitted.prompt_tokens, admitted.content) == (len(PROMPT), 0)
    assert admitted.requested_output == 6
    assert ended.output_tokens == result.shape[1] == 6
    assert [r.contexts[0] for r in rounds] == [len(PROMPT) - 1 + n for n in range(6)]


def test_a_compiled_forward_pass_is_timed_from_without(rig):
    compiled = transformers.CompileConfig(fullgraph=True, backend="eager")
    compiled._compile_all_devices = True
    values = {"cache_implementation": "static", "compile_config": compiled, "max_new_tokens": 6}

    tokens = rig.generate(**values)

    rounds, _ = rig.records()
    assert rig.recorder.on
    assert tokens == rig.generate(max_new_tokens=6)
    assert [r.emitted[0] for r in rounds] == [1] * 6
    assert all(0 < r.verify_us <= r.wall_us for r in rounds)


def test_an_end_that_is_seen_one_step_late_leaves_a_step_for_nobody(rig, monkeypatch):
    stop = a_stop_within(rig.generate(), 9)
    before = len(rig.records()[0])
    utils = transformers.generation.utils
    costs = Costs(rig, monkeypatch)
    monkeypatch.setattr(utils.DeferredStopCheck, "is_supported", lambda *_, **__: True)
    monkeypatch.setattr(torch, "Event", lambda **_: NoEvent())

    tokens = rig.generate(eos_token_id=stop)

    rounds = rig.records()[0][before:]
    assert costs.passes == len(tokens) + 1
    assert [r.emitted[0] for r in rounds] == [1] * len(tokens)
    assert (rounds[-1].ends[0], rounds[-1].padded_tokens) == (End.EOS, 1)
    assert sum(r.wall_us for r in rounds) == pytest.approx(costs.passes * 10_000)


class NoEvent:
    def record(self):
        pass

    synchronize = record


def test_a_draft_longer_than_a_record_holds_is_not_recorded(rig, caplog):
    long = [n % 60 for n in range(150)]

    rig.generate(long, prompt_lookup_num_tokens=255, max_new_tokens=4)

    assert rig.records() == ([], [])
    assert rig.recorder.on
    assert "more than 254" in caplog.text


@pytest.mark.parametrize("way", ["prompt lookup", "plain"])
@pytest.mark.parametrize(
    "point", ["__init__", "drafted", "round_ends", "step_begins", "forward_ends", "end", "_write"]
)
def test_a_fault_of_ours_detaches_and_generation_goes_on(rig, monkeypatch, way, point):
    rig.hook.remove()
    plain = rig.generate(**WAYS[way]())
    rig.hook = TransformersHook(rig.model, rig.recorder)

    def broken(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr(Call, point, broken)
    tokens = rig.generate(**WAYS[way]())
    again = rig.generate(**WAYS[way]())

    assert tokens == again == plain
    if way != "plain" or point not in ("drafted", "round_ends"):
        assert "planted" in rig.reader.fault_text
    assert rig.hook._thread.call is None


@pytest.mark.parametrize(
    ("method", "parameters", "recorded"),
    [
        ("update_candidate_strategy", "input_ids, scores, num_matches, added=None", True),
        ("update_candidate_strategy", "input_ids, scores, new_num_matches", False),
        ("update_candidate_strategy", "*args", False),
        ("get_candidates", "input_ids, *args, added=None, **kwargs", True),
        ("get_candidates", "new_input_ids, *args, **kwargs", False),
    ],
)
def test_a_candidate_generator_with_other_parameters_drafts_on(
    rig, monkeypatch, caplog, method, parameters, recorded
):
    before = a_model().generate(
        torch.tensor([PROMPT]), max_new_tokens=40, do_sample=False, prompt_lookup_num_tokens=4
    )[0, len(PROMPT) :]
    owner = transformers.generation.candidate_generator.PromptLookupCandidateGenerator
    space = {"original": getattr(owner, method)}
    names = parameters.replace("=None", "").replace(", added", "").replace(", **kwargs", "")
    exec(f"def {method}(self, {parameters}): return original(self, {names})", space)
    monkeypatch.setattr(owner, method, space[method])

    assert rig.generate(prompt_lookup_num_tokens=4) == before.tolist()

    assert bool(rig.records()[0]) == recorded
    assert len(caplog.records) == (0 if recorded else 1)


def test_a_detached_hook_keeps_nothing(rig):
    rig.recorder.detach("for the test")

    rig.generate(prompt_lookup_num_tokens=3)

    thread = rig.hook._thread
    assert (thread.call, thread.asked, thread.inside) == (None, {}, False)
    assert rig.records() == ([], [])


def test_a_removed_hook_leaves_the_model_as_it_was(rig):
    rig.hook.remove()

    rig.generate(prompt_lookup_num_tokens=4)

    assert rig.records() == ([], [])
    assert not {"generate", "_prefill", "get_compiled_call"} & set(vars(rig.model))
    assert not rig.model._forward_hooks
    assert not rig.model._forward_pre_hooks


def test_a_copy_of_a_hooked_model_is_not_hooked(rig, tmp_path):
    plain = rig.generate(max_new_tokens=5)
    before = len(rig.records()[0])
    torch.save(rig.model, tmp_path / "model.pt")
    copies = [
        copy.deepcopy(rig.model),
        pickle.loads(pickle.dumps(rig.model)),
        torch.load(tmp_path / "model.pt", weights_only=False),
    ]
    with torch.no_grad():
        rig.model.lm_head.weight.zero_()

    for model in copies:
        tokens = model.generate(torch.tensor([PROMPT]), max_new_tokens=5, do_sample=False)
        assert tokens[0, len(PROMPT) :].tolist() == plain
    assert len(rig.records()[0]) == before


def test_something_else_than_a_model_is_refused(rig):
    class Peft:
        def __init__(self, model):
            self.base = model

        def __getattr__(self, name):
            return getattr(self.base, name)

        def generate(self, inputs=None, generation_config=None):
            pass

    with pytest.raises(NotSupported, match="object has no generate"):
        TransformersHook(object(), rig.recorder)
    with pytest.raises(NotSupported, match="get_base_model"):
        TransformersHook(Peft(rig.model), rig.recorder)
    with pytest.raises(NotSupported, match="recorded already"):
        TransformersHook(rig.model, rig.recorder)


def test_a_model_that_generates_in_its_own_way_is_refused(rig):
    with pytest.raises(NotSupported, match="takes input_features"):
        TransformersHook(transformers.WhisperForConditionalGeneration(tiny_whisper()), rig.recorder)

    class Twice(type(rig.model)):
        def generate(self, inputs=None, generation_config=None, **values):
            super().generate(inputs, generation_config, **values)
            return super().generate(inputs, generation_config, **values)

    with pytest.raises(NotSupported, match="a generate of its own"):
        TransformersHook(Twice(rig.model.config), rig.recorder)


def tiny_whisper():
    sizes = {"encoder_layers": 1, "decoder_layers": 1}
    return transformers.WhisperConfig(
        vocab_size=64, d_model=16, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=8, max_source_positions=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, **sizes,
    )  # fmt: skip


def test_adapters_that_are_active_are_named_and_are_part_of_the_content(rig):
    rig.generate(max_new_tokens=3)
    rig.model._hf_peft_config_loaded = True
    rig.model.active_adapters = lambda: ["sql"]

    rig.generate(max_new_tokens=3)

    requests = rig.records()[1]
    assert rig.reader.names(NAME_ADAPTER) == {0: "sql"}
    assert (requests[0].adapter, requests[-1].adapter) == (255, 0)
    assert requests[0].content != requests[-1].content


def test_the_boot_record_counts_the_models_weights(rig):
    draft = a_model(1, 1)

    boot = transformers_boot(rig.model, HookSettings(None, "r0"), assistant=draft, k_max=20)

    assert boot.parameters == sum(p.numel() for p in rig.model.parameters())
    assert boot.draft_parameters == sum(p.numel() for p in draft.parameters())
    assert (boot.bytes_per_weight, boot.layers, boot.method) == (4.0, 2, "draft_model")
    assert (boot.quantisation, boot.active_parameters) == ("float32", boot.parameters)
    assert transformers_boot(rig.model, HookSettings(None, "r0")).method == "none"
