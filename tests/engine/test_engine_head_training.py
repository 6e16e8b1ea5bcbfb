"""Training of the draft head: what it unrolls is what drafting does, and nothing is lost."""

import json
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.head_plants import HEAD, HeadAsTarget, plain_outputs, random_head
from engine.tiny_models import TINY, tiny_model
from torch.nn import functional as F  # noqa: N812

from specscope.engine.errors import BadCheckpoint, BadSetting, IncompatiblePair
from specscope.engine.model.checkpoint import load_head, save_head
from specscope.engine.pair import HASHES, HEAD_FILES, Pair, load_bundled, load_pair
from specscope.engine.train import head as training
from specscope.engine.train.build import PAIR_FILES, build_head, write_hashes
from specscope.engine.train.corpus import Document, json_log, sql_script
from specscope.engine.train.head import HeadRecipe, continued_windows, train_head, unroll

BUNDLED = Path(str(files("specscope.engine"))) / "bundled"
LONG = replace(TINY, max_context=512)
RECIPE = HeadRecipe(ff=24, steps=4, windows=3)


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch):
    monkeypatch.setattr(training, "WIDTH", 48)
    monkeypatch.setattr(training, "BATCH", 4)
    monkeypatch.setattr(training, "PROMPTS", (8, 24))


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    return {
        label: rng.integers(0, TINY.vocab, 900).astype(np.uint16)
        for label in ("prose", "python", "sql", "json")
    }


@pytest.fixture(scope="module")
def small():
    return tiny_model(3, LONG, torch.float32)


def test_a_step_of_training_sees_what_drafting_sees(target):
    head = random_head()
    tokens = torch.randint(TINY.vocab, (2, 11), generator=torch.Generator().manual_seed(1))
    embedded = target.embed_tokens(tokens)
    features = F.pad(target.hidden_states(tokens)[:, :-1], (0, 0, 1, 0))

    unrolled = list(unroll(head, embedded, features, 4))

    for row in range(2):
        for anchor in range(11):
            # Draft from `anchor` on with the text's own tokens: true states up to it, then outputs.
            seen = features[row, : anchor + 1]
            for step in range(min(4, 11 - anchor)):
                place = anchor + step
                out = plain_outputs(head, embedded[row, : place + 1], seen)[-1]
                torch.testing.assert_close(unrolled[step][row, place], out)
                seen = torch.cat((seen, out[None]))


def test_the_loss_of_an_exact_head_is_the_entropy_of_its_targets_law():
    planted = HeadAsTarget(random_head())
    rows = torch.randint(TINY.vocab, (2, 12), generator=torch.Generator().manual_seed(2))

    with torch.no_grad():
        losses = training.unrolled_losses(planted.inner, planted, rows)
        law = planted.score(rows).softmax(-1)

    entropy = -(law * law.log()).sum(-1)
    for step, loss in enumerate(losses.tolist()):
        assert loss == pytest.approx(entropy[:, step:].mean().item(), rel=1e-5)


def trained(target, tokens, path, recipe=RECIPE, until=None, monkeypatch=None):
    def say(text):
        if until is not None and text.startswith(f"head step {until}/"):
            raise KeyboardInterrupt

    return train_head(target, tokens, recipe, path / "head.partial", say)


def weights(head):
    return torch.cat([parameter.flatten() for parameter in head.parameters()])


def test_a_training_that_was_interrupted_ends_with_the_bits_of_one_that_was_not(
    small, tokens, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "SAVED_EVERY", 2)
    whole = trained(small, tokens, tmp_path / "whole")

    with pytest.raises(KeyboardInterrupt):
        trained(small, tokens, tmp_path / "cut", until=2)
    resumed = trained(small, tokens, tmp_path / "cut")

    assert torch.equal(weights(whole), weights(resumed))
    other = trained(small, tokens, tmp_path / "other", replace(RECIPE, seed=4))
    assert not torch.equal(weights(whole), weights(other))


def test_a_partial_training_of_another_recipe_is_not_taken_up(small, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SAVED_EVERY", 2)
    longer = replace(RECIPE, steps=6, seed=5)
    whole = trained(small, tokens, tmp_path / "whole", longer)
    trained(small, tokens, tmp_path / "cut")

    again = trained(small, tokens, tmp_path / "cut", longer)

    assert torch.equal(weights(whole), weights(again))


def test_progress_names_the_step_the_loss_and_the_time_left(small, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SAVED_EVERY", 2)
    lines = []

    train_head(small, tokens, RECIPE, tmp_path / "head.partial", lines.append)

    assert lines[0] == "the target wrote 3 of 3 windows"
    assert [line.split(" loss")[0] for line in lines[1:]] == ["head step 2/4", "head step 4/4"]
    assert all(line.endswith("min left") for line in lines[1:])


def test_windows_are_continued_by_the_target_and_kept(small, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "WRITTEN_AT_ONCE", 2)
    path = tmp_path / "windows"

    windows = continued_windows(small, tokens, RECIPE, path, lambda text: None)

    assert windows.shape == (3, 48)
    for number in (0, 2):  # the greedy ones
        text = torch.from_numpy(windows[number].astype(np.int64))
        best = small.score(text[None])[0, :-1].argmax(-1)
        assert (best[23:] == text[24:]).all()
    few = continued_windows(small, tokens, replace(RECIPE, windows=2), tmp_path / "few", print)
    assert (few == windows[:2]).all()
    path.with_name("few").rename(path)
    again = continued_windows(small, tokens, RECIPE, path, lambda text: None)
    assert (again == windows).all()


def test_no_window_is_written_twice(small, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "WRITTEN_AT_ONCE", 2)

    windows = continued_windows(
        small, tokens, replace(RECIPE, windows=6), tmp_path / "windows", lambda text: None
    )

    assert len(np.unique(windows, axis=0)) == 6


def test_a_training_ends_with_the_mean_of_the_last_five_states(
    small, tokens, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "SAVED_EVERY", 1)

    def states_of(name, steps):
        head = trained(small, tokens, tmp_path / name, replace(RECIPE, steps=steps))
        partial = torch.load(tmp_path / name / "head.partial", weights_only=True)
        return head.state_dict(), partial["states"]

    _, first = states_of("three", 3)
    result, states = states_of("seven", 7)

    assert len(states) == 5
    for name, value in result.items():
        assert torch.equal(states[0][name], first[2][name])  # the third of seven
        own = torch.stack([state[name] for state in states])
        torch.testing.assert_close(value, own.mean(0))
        assert not torch.equal(value, own[-1])


def test_a_few_steps_bring_the_head_nearer_to_its_target(small, tokens, tmp_path):
    rows = torch.from_numpy(np.stack([tokens["sql"][:48], tokens["json"][:48]]).astype(np.int64))
    before = trained(small, tokens, tmp_path / "none", replace(RECIPE, steps=0))
    after = trained(small, tokens, tmp_path / "some", replace(RECIPE, steps=20))

    first, last = (training.unrolled_losses(head, small, rows) for head in (before, after))

    assert (last < first).all()


def test_a_head_is_read_back_as_it_was_written(tmp_path):
    head = random_head().half().float()
    save_head(head, tmp_path / "head.json", tmp_path / "head.safetensors", "abc")

    again, digest = load_head(tmp_path / "head.json", tmp_path / "head.safetensors")

    assert digest == "abc"
    assert again.config == HEAD
    assert torch.equal(weights(head), weights(again))


@pytest.mark.parametrize("change", ["kind", "digest", "weights", "size"])
def test_a_head_that_is_damaged_or_none_is_refused(tmp_path, change):
    config, file = tmp_path / "head.json", tmp_path / "head.safetensors"
    save_head(random_head(), config, file, "abc")
    raw = json.loads(config.read_text())
    if change == "kind":
        raw["architectures"] = ["LlamaForCausalLM"]
    if change == "digest":
        del raw["target_sha256"]
    if change == "size":
        raw["intermediate_size"] += 1
    config.write_text(json.dumps(raw))
    if change == "weights":
        file.write_bytes(file.read_bytes()[:-40])

    with pytest.raises(BadCheckpoint):
        load_head(config, file)


@pytest.fixture
def own_pair(tmp_path):
    """The bundled pair without a head, and a head of its sizes with random weights."""
    folder = tmp_path / "pair"
    folder.mkdir()
    for name in PAIR_FILES:
        shutil.copyfile(BUNDLED / name, folder / name)
    write_hashes(folder)
    return folder


def test_a_pair_may_lack_a_head_and_says_so_when_it_is_asked_for(own_pair):
    pair = load_pair(own_pair)

    assert pair.head is None
    assert pair.drafters == ("none", "model", "ngram")
    with pytest.raises(BadSetting, match="no draft head"):
        pair.drafter("eagle")
    with pytest.raises(BadSetting, match="no draft model"):
        Pair(pair.target, None, pair.tokenizer, 4, (), "alone").drafter("model")
    with pytest.raises(BadSetting, match="unknown drafter 'medusa'"):
        pair.drafter("medusa")


@pytest.mark.parametrize("wrong", ["target", "hidden"])
def test_a_head_of_another_target_is_refused_when_the_pair_is_loaded(own_pair, wrong):
    sizes = replace(HEAD, vocab=2048, hidden=256 if wrong == "target" else 128, max_context=1024)
    digest = dict(
        reversed(line.split("  ")) for line in (own_pair / HASHES).read_text().splitlines()
    )["target.safetensors"]
    given = "0" * 64 if wrong == "target" else digest
    save_head(random_head(sizes), *(own_pair / name for name in HEAD_FILES), given)
    write_hashes(own_pair)

    with pytest.raises(IncompatiblePair, match="head"):
        load_pair(own_pair)


def test_a_head_is_trained_for_a_pair_and_loads_with_it(own_pair, tmp_path):
    documents = [
        Document(label, f"generated:{index}", write(1, index))
        for label, write in (
            ("sql", sql_script), ("json", json_log), ("prose", sql_script), ("python", json_log),
        )
        for index in range(2, 12)
    ]  # fmt: skip
    out, lines = tmp_path / "out", []

    build_head(documents, own_pair, out, lines.append, HeadRecipe(ff=32, steps=1, windows=2))

    pair = load_pair(out)
    assert pair.drafters == ("none", "model", "eagle", "ngram")
    assert pair.head.config.ff == 32
    assert sorted(path.name for path in out.iterdir()) == sorted([*PAIR_FILES, *HEAD_FILES, HASHES])
    assert torch.equal(pair.target.embedding, load_bundled().target.embedding)
