"""Tiny random models of the test's own, a hook on one of them, and transformers' own tally."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
import transformers
from hook_fakes import a_boot, drained
from transformers.generation import candidate_generator as generators

from specscope_hook.adapters.transformers import TransformersHook
from specscope_hook.payload import decode
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring, RingReader
from specscope_hook.ring_records import RingRequest, RingRound

PROMPT = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6]
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}


def a_model(layers: int = 2, seed: int = 0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        **SIZES,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,  # else it says one token for ever
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@dataclass
class Turn:
    """A round as transformers itself had it: text before it, proposals, what came out."""

    context: int
    proposed: list[int]
    emitted: list[int]

    @property
    def accepted(self) -> int:
        """Leading proposals that are in the text."""
        pairs = zip(self.proposed, self.emitted, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), self.within)

    @property
    def within(self) -> int:
        return min(len(self.proposed), len(self.emitted))


class Tally(transformers.generation.BaseStreamer):
    """What came out, as a streamer sees it; what was proposed, by the candidate generators'
    classes; how long the queries of the target's forward passes were, by its own listener."""

    def __init__(self, model, monkeypatch):
        self.turns: list[Turn] = []
        self.queries: list[int] = []
        self._before: list[tuple[int, list[int]]] = []
        self._prompt_seen = False
        model.register_forward_pre_hook(self._forward, with_kwargs=True)
        for owner in (
            generators.PromptLookupCandidateGenerator,
            generators.AssistedCandidateGenerator,
        ):
            monkeypatch.setattr(owner, "get_candidates", self._around(owner.get_candidates))

    def _around(self, original):
        def get_candidates(generator, input_ids, **more):
            result = original(generator, input_ids, **more)
            length = input_ids.shape[1]
            self._before = [(length, result[0][0, length:].tolist())]
            return result

        return get_candidates

    def _forward(self, _, args, named):
        ids = named.get("input_ids", args[0] if args else None)
        self.queries.append(ids.shape[1])

    def put(self, value):
        if not self._prompt_seen:  # generate gives the prompt first
            self._prompt_seen = True
            self._length = value.shape[-1]
            return
        tokens = value.flatten().tolist()
        context, proposed = self._before.pop() if self._before else (self._length, [])
        self.turns.append(Turn(context, proposed, tokens))
        self._length += len(tokens)

    def end(self):
        self._prompt_seen = False

    @property
    def tokens(self) -> list[int]:
        return [token for turn in self.turns for token in turn.emitted]


class Rig:
    def __init__(self, directory, model=None):
        torch.set_num_threads(1)
        self.model = model or a_model()
        self.ring = Ring.create(directory / "a.ring", a_boot(), 1 << 20)
        self.recorder = Recorder(self.ring, salt="s")
        self.reader = RingReader.open(self.ring.path)
        self.hook = TransformersHook(self.model, self.recorder)

    def generate(self, prompt=PROMPT, **values):
        plain = {"max_new_tokens": 40, "do_sample": False} | values
        return self.model.generate(torch.tensor([prompt]), **plain)[0, len(prompt) :].tolist()

    def records(self):
        """Rounds and requests, all since the beginning."""
        kinds = defaultdict(list)
        for record in map(decode, drained(self.reader)[0]):
            kinds[type(record)].append(record)
        return kinds[RingRound], kinds[RingRequest]
