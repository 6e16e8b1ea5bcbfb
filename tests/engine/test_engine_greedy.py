"""Hundreds of prompts in ragged batches give transformers' own greedy texts, token for token."""

import random
from dataclasses import replace

import pytest
import torch
from engine.tiny_models import TINY, Record, prompts, random_gate

import specscope.engine.decode.scheduler as budgets
from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.checkpoint import load_checkpoint
from specscope.engine.model.config import write_config

PROMPTS, NEW_TOKENS = 200, 16


def test_ragged_speculative_greedy_is_transformers_greedy(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "HEADROOM_ROUNDS", 0)  # so that a full cache puts many back
    transformers = pytest.importorskip("transformers")
    write_config(replace(TINY, vocab=97), tmp_path / "config.json")
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(tmp_path), dtype=torch.float64
    ).eval()
    generator = torch.Generator().manual_seed(5)
    for parameter in theirs.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    theirs.save_pretrained(tmp_path)
    ours, record, rng = load_checkpoint(tmp_path, torch.float64), Record(), random.Random(3)
    texts = prompts([rng.randint(1, 60) for _ in range(PROMPTS)], vocab=97)
    limits = [rng.randint(1, NEW_TOKENS) for _ in texts]
    full = Record()
    for own, more in ((record, {}), (full, {"cache_tokens": 300, "prefill_tokens": 150})):
        engine = Engine(
            ours, ModelDrafter(ours), k_max=4, slots=16, capacity=100, gate=random_gate(4),
            observers=[own], **more,
        )  # fmt: skip
        for index, (text, limit) in enumerate(zip(texts, limits, strict=True)):
            engine.submit(str(index), text, SamplingParams(max_new_tokens=limit))
            if index % 3 == 0:
                engine.step()
        while engine.step():
            pass

    for index, (text, limit) in enumerate(zip(texts, limits, strict=True)):
        with torch.inference_mode():
            expected = theirs.generate(
                torch.tensor([text]),
                attention_mask=torch.ones(1, len(text), dtype=torch.long),
                max_new_tokens=limit,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        assert record.texts[str(index)] == expected[0, len(text) :].tolist()
    assert full.texts == record.texts
    assert sum(end.preemptions for end in full.ends.values()) > 0
    assert record.acceptance == full.acceptance == 1.0
