"""From answers to verdicts: what is right, how often the interval is, and what is never said."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from replay.answers import answers, trace

from specscope.errors import InputError
from specscope.replay import contrast, result
from specscope.replay.counters import Counted
from specscope.replay.judge import judge, shortfalls
from specscope.replay.page import markdown
from specscope.replay.schedule import cut
from specscope.replay.show import lines

ARMS = ("k0", "k4")


def verdict_of(gain, **kwargs):
    asked = trace()
    judged = judge(asked, answers(asked, gain={"sql": gain}, drift=0.02, **kwargs), ARMS)
    return judged.verdicts[0]


def a_result(judged, arms=ARMS):
    return result.ReplayResult(
        1, "e1", arms, ("http://a", "http://b"), "00", 120, {"parts": 10}, judged
    )


@pytest.mark.parametrize(
    ("gain", "action", "k"),
    [(1.5, "set_k", 4), (0.7, "disable", 0), (1.0, "no_difference", None)],
)
def test_the_action_follows_the_truth(gain, action, k):
    found = verdict_of(gain, own_sd=0.02)

    verdict = found.verdict
    assert (verdict.action, verdict.k, verdict.grade, verdict.confidence) == (
        action, k, "replayed", "high",
    )  # fmt: skip
    assert found.gains[0].low < gain < found.gains[0].high
    assert (verdict.segment.context, verdict.segment.output) == ("0-1k", "65-256")


def test_an_unnamed_pair_of_endpoints_gets_no_draft_length():
    asked = trace()

    judged = judge(asked, answers(asked, gain={"sql": 1.5}), ("a", "b"))

    assert (judged.verdicts[0].verdict.action, judged.verdicts[0].verdict.k) == ("keep", None)


def test_the_gain_is_a_ratio_of_sums():
    asked = trace(2)
    made = answers(asked, parts=1)
    (gain,) = [contrast.token_time(contrast.pair_up(asked.requests, made), 0.95)]

    a, b = (
        sum(o.decode_ms for o in made if o.side == side)
        / sum(o.output_tokens - 1 for o in made if o.side == side)
        for side in "ab"
    )
    assert (gain.a, gain.b, gain.value) == pytest.approx((a, b, a / b))


def test_the_interval_covers_the_truth_where_parts_drift_and_requests_differ():
    covered = {0.0: 0, 0.15: 0}
    for drift in covered:
        for seed in range(200):
            asked = trace(64)
            made = answers(asked, parts=8, gain={"sql": 1.2}, seed=seed, drift=drift)
            found = contrast.token_time(contrast.pair_up(asked.requests, made), 0.95)
            covered[drift] += found.low <= 1.2 <= found.high

    # The wider of two intervals: never under the nominal level, and a little over it.
    assert all(hits >= 186 for hits in covered.values()), covered


def test_requests_alone_would_not_see_that_a_machine_drifts():
    asked = trace(64)
    made = answers(asked, parts=8, drift=0.3, own_sd=0.01)

    found = contrast.token_time(contrast.pair_up(asked.requests, made), 0.95)

    assert found.by_parts


def test_requests_of_one_session_are_one_cluster():
    asked = trace(sessions=5)

    found = contrast.token_time(contrast.pair_up(asked.requests, answers(asked)), 0.95)

    assert found.clusters == 5


def test_the_95th_percentile_of_gaps_and_the_first_token_stand_beside_it():
    names = [gain.metric for gain in verdict_of(1.5).gains]

    assert names == [
        "time per output token",
        "time to first token",
        "95th percentile of chunk gaps",
    ]
    first, gaps = verdict_of(1.5).gains[1:]
    assert first.value == pytest.approx(1.0)
    assert gaps.low < 1.5 < gaps.high


def test_two_classes_are_judged_apart_and_together():
    asked = trace(240, classes=("sql", "prose"))
    gain = {"sql": 1.6, "prose": 0.7}

    judged = judge(asked, answers(asked, gain=gain, drift=0.02), ARMS)

    assert [(v.verdict.segment.class_, v.verdict.action) for v in judged.verdicts[:2]] == [
        ("prose", "disable"), ("sql", "set_k")
    ]  # fmt: skip
    assert judged.verdicts[2].verdict.segment.class_ is None
    assert judged.verdicts[2].gains[0].metric == "output tokens per second"


@pytest.mark.parametrize(
    ("spoil", "flag", "action"),
    [
        ({"error": "HTTP 500: no"}, "FAILURES", "not_comparable"),
        ({"late_s": 3.0}, "LATE", "set_k"),
    ],
)
def test_what_cannot_be_believed_is_flagged_and_has_no_grade(spoil, flag, action):
    asked = trace()
    made = answers(asked, gain={"sql": 1.5}, drift=0.02)
    made = [dataclasses.replace(o, **spoil) if o.number < 20 else o for o in made]

    judged = judge(asked, made, ARMS)

    assert flag in judged.flags
    assert (judged.verdicts[0].verdict.grade, judged.verdicts[0].verdict.action) == ("none", action)
    assert judged.verdicts[0].verdict.confidence != "high"


def test_texts_of_surely_different_length_are_not_compared():
    asked = trace()
    made = [
        dataclasses.replace(o, output_tokens=2 * o.output_tokens) if o.side == "b" else o
        for o in answers(asked)
    ]

    judged = judge(asked, made, ARMS)

    assert judged.flags == ("LENGTHS_DIFFER",)
    assert judged.verdicts[0].verdict.action == "not_comparable"


def test_prompts_that_were_not_kept_give_times_and_no_grade():
    asked = dataclasses.replace(
        trace(), requests=tuple(dataclasses.replace(r, content={}) for r in trace().requests)
    )

    judged = judge(asked, answers(asked, gain={"sql": 1.5}, drift=0.02), ARMS)

    assert judged.flags == ("SYNTHETIC_PROMPTS",)
    assert judged.verdicts[0].verdict.grade == "none"


@pytest.mark.parametrize("count", [0, 1, 2, 29])
def test_few_answers_are_inconclusive_and_never_not_a_number(count):
    asked = trace(max(1, count))
    made = answers(asked, parts=1, gain={"sql": 3.0})[: 2 * count]

    judged = judge(asked, made, ARMS)

    assert judged.verdicts[0].verdict.action in ("inconclusive", "not_comparable")
    text = json.dumps(result.as_json(a_result(judged)), allow_nan=False)
    assert "NaN" not in text
    assert lines(a_result(judged))


def test_order_of_answers_changes_nothing():
    asked = trace(90, classes=("sql", "prose", "json"))
    made = answers(asked, gain={"sql": 1.4})
    shuffled = [made[i] for i in np.random.default_rng(3).permutation(len(made))]

    assert result.as_json(a_result(judge(asked, made, ARMS))) == result.as_json(
        a_result(judge(asked, shuffled, ARMS))
    )


def test_texts_that_differ_are_counted():
    asked = trace(40)
    made = [
        dataclasses.replace(o, digest="other") if (o.side, o.number) == ("b", 3) else o
        for o in answers(asked)
    ]

    judged = judge(asked, made, ARMS)

    assert (judged.outputs_compared, judged.outputs_differing) == (40, 1)
    assert "texts of 40 requests compared, 1 differ" in lines(a_result(judged))


def test_requests_in_flight_follow_from_when_they_ran():
    asked = trace(2)
    made = answers(asked, parts=1)
    spans = [
        dataclasses.replace(o, began_s=0.5 * o.number, ended_s=0.5 * o.number + 1.0) for o in made
    ]

    judged = judge(asked, spans, ARMS)

    assert judged.largest == 2
    assert judged.batch == pytest.approx(2.0 / 1.5)


def test_a_result_is_read_as_it_was_written(tmp_path):
    asked = trace(classes=("sql", "prose"))
    written = a_result(judge(asked, answers(asked), ARMS))
    result.write(tmp_path / "r.json", written)

    found = result.read(tmp_path / "r.json")

    assert result.as_json(found) == result.as_json(written)
    assert math.isfinite(found.judged.batch)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "specscope.gate/1"}', '{"schema": 1}']
)
def test_a_file_that_is_no_result_is_one_line(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)

    with pytest.raises(InputError) as error:
        result.read(path)

    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("counted", "flag", "action"),
    [
        ({"a": Counted(5, 20, 9), "b": Counted(5, 20, 9)}, "BASELINE_DRAFTS", "not_comparable"),
        ({"a": Counted(0, 0, 0), "b": Counted(0, 0, 0)}, "NOT_DRAFTED", "not_comparable"),
        ({"a": Counted(0, 0, 0), "b": Counted(5, 20, 9)}, None, "set_k"),
        ({"a": None, "b": None}, None, "set_k"),
    ],
)
def test_sides_that_did_not_run_as_they_are_named_are_flagged(counted, flag, action):
    asked = trace()

    judged = judge(asked, answers(asked, gain={"sql": 1.5}, drift=0.02), ARMS, counted)

    assert judged.flags == ((flag,) if flag else ())
    assert judged.verdicts[0].verdict.action == action


def test_a_loss_against_a_baseline_that_drafts_is_a_loss():
    asked = trace()
    counted = {"a": Counted(5, 20, 9), "b": Counted(5, 20, 9)}

    judged = judge(asked, answers(asked, gain={"sql": 0.5}, drift=0.02), ARMS, counted)

    assert judged.verdicts[0].verdict.action == "disable"


@pytest.mark.parametrize(
    ("requests", "parts", "passes", "sentences", "nothing"),
    [
        (60, 10, 1, 0, False),
        (60, 4, 1, 1, False),
        (60, 4, 2, 0, False),
        (60, 2, 1, 1, True),
        (20, 10, 1, 1, True),
        (20, 10, 2, 0, False),
    ],
)
def test_what_cannot_be_decided_is_known_before_anything_is_sent(
    requests, parts, passes, sentences, nothing
):
    asked = trace(requests)

    said, all_of_it = shortfalls(asked, cut(asked, parts, passes, 0))

    assert (len(said), all_of_it) == (sentences, nothing)


def test_the_reason_of_most_failures_is_said():
    asked = trace()
    made = [
        dataclasses.replace(o, error="gone" if o.number % 3 else "slow") if o.side == "b" else o
        for o in answers(asked)
    ]

    judged = judge(asked, made, ARMS)

    assert judged.failures == {"b": "gone"}
    assert any("gone" in line for line in lines(a_result(judged)))


def test_every_figure_of_the_page_is_in_the_json():
    asked = trace(240, classes=("sql", "prose"))
    judged = judge(asked, answers(asked, gain={"sql": 1.6, "prose": 0.7}, drift=0.02), ARMS)
    plain = json.loads(json.dumps(result.as_json(a_result(judged))))

    page = markdown(a_result(judged))

    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    gains = [gain for verdict in plain["verdicts"] for gain in verdict["gains"]]
    assert len(rows) == len(gains) == 8
    for row, gain in zip(rows, gains, strict=True):
        value, low, high = re.findall(r"\d+\.\d+", row.split("|")[-2])
        assert [float(value), float(low), float(high)] == [
            pytest.approx(gain[name], abs=5e-4) for name in ("value", "low", "high")
        ]
    assert [row.split("|")[2].strip().split(" (")[0] for row in rows[:4:3]] == [
        "k4 loses", "k = 4 pays"
    ]  # fmt: skip


def test_a_page_without_a_gain_says_so():
    asked = trace(40)
    made = [dataclasses.replace(o, error="gone") for o in answers(asked)]

    page = markdown(a_result(judge(asked, made, ARMS)))

    assert "FAILURES" in page
    assert "| – | – | – |" in page
