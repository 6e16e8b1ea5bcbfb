"""The shipped pair is whole, is the one described, and is really its project's own."""

import json
import shutil
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bench.acceptance import measure
from specscope.engine.decode.checks import check_pair
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadCheckpoint, IncompatiblePair, NoCorpus
from specscope.engine.pair import bundled_prompts, check_hashes, load_bundled, load_pair, model_card
from specscope.engine.train.build import prompt_documents
from specscope.engine.train.corpus import Document, markdown_text, own_documents, sql_script

DIRECTORY = Path(str(files("specscope.engine"))) / "bundled"


@pytest.fixture(scope="module")
def pair():
    return load_bundled()


def test_the_pair_has_the_size_it_is_described_with(pair):
    card = model_card(pair)

    assert card["target"]["parameters"] == card["target"]["active_parameters"] == 6_426_880
    assert card["draft"]["parameters"] == 446_848
    assert card["target"]["kv_bytes_per_token"] == 2 * 8 * 2 * 64 * 4
    assert (card["target"]["layers"], card["draft"]["layers"]) == (8, 1)
    assert sum(path.stat().st_size for path in DIRECTORY.iterdir()) < 16e6


def test_the_prompts_are_several_dozen_a_class_and_of_one_length(pair):
    prompts = bundled_prompts()

    counts = Counter(prompt.label for prompt in prompts)
    lengths = [len(pair.encode(prompt.text)) for prompt in prompts]
    assert counts == {"prose": 64, "python": 64, "sql": 64, "json": 64}
    assert all(60 <= length <= 68 for length in lengths)
    assert len({prompt.text for prompt in prompts}) == len(prompts)


def test_text_goes_through_the_tokenizer_unchanged(pair):
    text = "def f(x):\n    return {'é': 12345, \"→\": x}\n"

    assert pair.decode(pair.encode(text)) == text


@pytest.mark.parametrize(
    "name", ["draft.safetensors", "head.safetensors", "head.json", "tokenizer.json"]
)
def test_a_file_that_was_changed_is_refused_by_name(tmp_path, name):
    copy = tmp_path / "pair"
    shutil.copytree(DIRECTORY, copy)
    content = bytearray((copy / name).read_bytes())
    content[-1] ^= 1
    (copy / name).write_bytes(content)

    with pytest.raises(BadCheckpoint, match=name):
        load_pair(copy)

    (copy / name).unlink()
    with pytest.raises(BadCheckpoint, match=name):
        check_hashes(copy)


def test_models_of_different_vocabularies_do_not_make_a_pair(pair, target):
    with pytest.raises(IncompatiblePair, match=r"2048.*61"):
        check_pair(pair.target.config, target.config)


def test_the_draft_is_worth_more_on_sql_than_on_prose(pair):
    prompts = [p for p in bundled_prompts() if p.label in ("prose", "sql")]
    few = [p for label in ("prose", "sql") for p in [q for q in prompts if q.label == label][:4]]

    cells = {(c.label, c.mode): c.prefix for c in measure(pair, few, ks=(4,))}

    for mode in ("greedy", "rejection", "coupled"):
        assert 0.2 < cells["prose", mode] < cells["sql", mode] < 4


def test_the_head_accepts_more_than_prompt_lookup_and_the_draft_model_in_every_class(pair):
    labels = ("prose", "python", "sql", "json")
    few = [p for label in labels for p in [q for q in bundled_prompts() if q.label == label][:4]]

    cells = {
        (c.drafter, c.label, c.mode): c
        for drafter in ("eagle", "model", "ngram")
        for c in measure(pair, few, ks=(4,), drafter=drafter)
    }

    for label in labels:
        for mode in ("greedy", "rejection", "coupled"):
            head, other = cells["eagle", label, mode], cells["ngram", label, mode]
            assert head.first > other.first + 0.1
            assert head.prefix > other.prefix + 0.5
        assert cells["eagle", label, "greedy"].prefix > cells["model", label, "greedy"].prefix


@pytest.mark.parametrize("drafter", ["model", "eagle"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_pairs_text_is_the_same_with_and_without_speculation(pair, temperature, drafter):
    ends = []
    for k in (0, 4):
        texts = {}
        watcher = Watcher(texts)
        engine = Engine(
            pair.target, pair.drafter(drafter), k_max=4, slots=16, capacity=140,
            gate=fixed_gate(k), observers=[watcher],
        )  # fmt: skip
        for index, prompt in enumerate(bundled_prompts()[::16]):
            params = SamplingParams(temperature, seed=index, max_new_tokens=64, eos=pair.eos)
            engine.submit(str(index), pair.encode(prompt.text), params)
        while engine.step():
            pass
        ends.append(texts)

    assert ends[0] == ends[1]
    assert len(ends[0]) == 16


class Watcher:
    def __init__(self, texts):
        self.texts = texts

    def round_begins(self): ...

    def round_ended(self, report): ...

    def admitted(self, request): ...

    def ended(self, end):
        self.texts[end.request.id] = end.token_ids


def test_in_bfloat16_no_emitted_token_falls_behind_the_best_by_more_than_rounding():
    pair, texts = load_bundled(torch.bfloat16), {}
    prompts = [pair.encode(prompt.text) for prompt in bundled_prompts()[::32]]
    engine = Engine(
        pair.target, ModelDrafter(pair.draft), k_max=4, slots=8, capacity=120,
        gate=fixed_gate(4), observers=[Watcher(texts)],
    )  # fmt: skip
    for index, prompt in enumerate(prompts):
        engine.submit(str(index), prompt, SamplingParams(max_new_tokens=40))

    while engine.step():
        pass

    for index, prompt in enumerate(prompts):
        said = torch.tensor(texts[str(index)])
        with torch.inference_mode():
            logits = pair.target.score(torch.tensor([prompt + said.tolist()]))[0].float()
        logits = logits[len(prompt) - 1 : -1]
        best = logits.amax(1)
        assert (best - logits.gather(1, said[:, None]).squeeze(1)).max() <= 0.25


def test_every_shipped_prompt_is_of_the_projects_own_text():
    lines = (DIRECTORY / "prompts.jsonl").read_text().splitlines()
    sources = {row["label"]: set() for row in map(json.loads, lines)}
    for row in map(json.loads, lines):
        sources[row["label"]].add(row["source"].partition(":")[0].partition("/")[0])

    assert sources["sql"] == sources["json"] == {"generated"}
    assert sources["prose"] <= {"README.md", "docs"}
    assert sources["python"] <= {"specscope", "collectors"}


def test_prompts_are_cut_from_pages_without_code_tables_or_markup():
    page = """# Title

See [the page](x.md) for `k` and **more**: words enough to be kept as a paragraph of text.

```sh
make test and everything else that nobody should find among the words of a paragraph
```

| a table | of two cells and many words that nobody should find among the paragraphs |

* An item of a list that is long enough to be kept as a paragraph of its own here.
"""

    assert markdown_text(page).split("\n\n") == [
        "See the page for k and more: words enough to be kept as a paragraph of text.",
        "An item of a list that is long enough to be kept as a paragraph of its own here.",
    ]


def test_prompts_are_no_text_that_a_model_learned_from():
    own = own_documents()
    learned = [
        Document("prose", "page", "x" * 600),
        Document("sql", "generated:1", sql_script(1, 1)),
    ]
    shipped = prompt_documents(learned, own)

    assert {document.label for document in own} == {"prose", "python"}
    assert all(d in own or (d.source.startswith("generated:") and d.held_out) for d in shipped)


def test_own_text_is_looked_for_in_a_checkout_only(tmp_path):
    with pytest.raises(NoCorpus, match="no checkout"):
        own_documents(tmp_path)
