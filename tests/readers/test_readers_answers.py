"""Answer files of Spec-Bench and EAGLE."""

import json

import pytest

from specscope.analyze.collect import analyze


def answer(category, tokens, seconds, **steps):
    choice = {"index": 0, "turns": ["a"], "new_tokens": [tokens], "wall_time": [seconds], **steps}
    return json.dumps({"question_id": 1, "category": category, "choices": [choice]}) + "\n"


def pair(tmp_path, plain, spec):
    (tmp_path / "vicuna-vanilla.jsonl").write_text(plain)
    (tmp_path / "vicuna-other.jsonl").write_text(spec)
    paths = [str(tmp_path / name) for name in ("vicuna-vanilla.jsonl", "vicuna-other.jsonl")]
    return analyze(paths).as_json()


@pytest.mark.parametrize(
    ("one_each", "several"),
    [
        ({"accept_lengths": [1] * 100}, {"accept_lengths": [3, 2, 4, 1] * 10}),
        ({"idxs": [99]}, {"idxs": [39]}),
    ],
    ids=["spec-bench", "eagle"],
)
def test_each_category_is_a_class_of_its_own(tmp_path, one_each, several):
    plain = answer("coding", 100, 4.0, **one_each) + answer("writing", 100, 4.0, **one_each)
    spec = answer("coding", 100, 2.0, **several) + answer("writing", 100, 5.0, **several)

    found = pair(tmp_path, plain, spec)

    by_class = {v["class"]["label"]: v["action"] for v in found["verdicts"]}
    assert by_class == {"coding": "keep", "writing": "disable"}
    assert {round(c["speedup"], 3) for c in found["comparisons"]} == {2.0, 0.8}
    assert {(w["drafts"], w["accepted"], w["mean_length"]) for w in found["windows"]} == {
        (40, 60, 2.5)
    }


def test_steps_of_several_tokens_are_no_baseline_whatever_the_file_is_called(tmp_path):
    spec = answer("coding", 100, 4.0, accept_lengths=[2] * 50)

    found = pair(tmp_path, spec, spec)

    assert not found["comparisons"] or all(v["action"] != "keep" for v in found["verdicts"])
    assert {v["action"] for v in found["verdicts"]} == {"collect_baseline"}
