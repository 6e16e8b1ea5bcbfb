"""Rounds through every stage with real processes; what arrives is what the engine did."""

import json

import pytest
from pipeline import Pipeline

from specscope.store.connection import Store

REQUEST_PARTS = "SELECT * FROM request_part FINAL ORDER BY request, first_seq"


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The writer's own log, and the store after everything has been shipped."""
    pipeline = Pipeline(tmp_path_factory.mktemp("walk"))
    pipeline.service()
    pipeline.agent()
    log = pipeline.traffic("traffic", 3000, seed=7, pause_us=200)
    pipeline.finish("traffic")
    pipeline.until(pipeline.shipped)
    pipeline.stop("agent")
    pipeline.stop("service")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    with Store.open(pipeline.store) as store:
        yield records, store
    pipeline.close()


def test_what_arrives_is_what_the_engine_did_value_by_value(walked):
    records, store = walked
    did = [record for record in records if record["kind"] == "round"]

    rounds = store.rows("SELECT * FROM round FINAL ORDER BY seq")
    requests = {row["request"]: row for row in store.rows("SELECT * FROM request FINAL")}
    parts = store.rows(REQUEST_PARTS)

    assert len(rounds) == len(did)
    for row, want in zip(rounds, did, strict=True):
        assert row["batch"] == len(want["requests"])
        assert row["k"] == max(want["k"])
        assert row["n_q"] == sum(want["k"]) + len(want["k"])
        assert row["n_kv"] == sum(want["contexts"])
        assert row["proposed"] == sum(want["k"])
        assert row["accepted"] == sum(want["accepted"])
        assert row["emitted"] == sum(want["emitted"])
        assert row["waiting"] == want["waiting"]
        assert row["padded_tokens"] == want["padded_tokens"]
        assert row["catchup_us"] is None
        assert row["arm"] is None
        for part in ("wall_us", "draft_us", "verify_us", "sample_us", "idle_us"):
            assert row[part] == pytest.approx(want[part], rel=1e-6)
        for place, label in enumerate(row["classes"]):
            mine = [i for i, name in enumerate(want["classes"]) if name == label]
            assert row["class_sequences"][place] == len(mine)
            assert row["class_proposed"][place] == sum(want["k"][i] for i in mine)
            assert row["class_accepted"][place] == sum(want["accepted"][i] for i in mine)
            assert row["class_emitted"][place] == sum(want["emitted"][i] for i in mine)
            assert row["class_context"][place] == sum(want["contexts"][i] for i in mine)

    admitted = {r["request"]: r for r in records if r["kind"] == "admitted"}
    ended = {r["request"]: r for r in records if r["kind"] == "ended"}
    assert requests.keys() == admitted.keys() == ended.keys()
    for request, row in requests.items():
        assert row["class"] == admitted[request]["label"]
        assert row["prompt_tokens"] == admitted[request]["prompt"]
        assert row["requested_output"] == admitted[request]["asked"]
        assert row["output_tokens"] == ended[request]["tokens"]
        assert row["reason"] == "length"
        assert row["digest"] == request ^ 1

    by_request = {}
    for part in parts:
        by_request.setdefault(part["request"], []).append(part)
    for request, mine in by_request.items():
        history = [
            (r["k"][i], r["accepted"][i], r["emitted"][i], r["contexts"][i])
            for r in did
            if request in r["requests"]
            for i in [r["requests"].index(request)]
        ]
        assert [k for part in mine for k in part["k"]] == [h[0] for h in history]
        assert [a for part in mine for a in part["accepted"]] == [h[1] for h in history]
        emitted = [
            e for part in mine for e in (part["emitted"] or [a + 1 for a in part["accepted"]])
        ]
        assert emitted == [h[2] for h in history]
        assert mine[0]["context"] == history[0][3]
        assert sum(part["rounds"] for part in mine) == len(history)
        assert sum(emitted) == requests[request]["output_tokens"]


def test_every_round_is_the_sum_of_its_request_parts(walked):
    _, store = walked

    by_round = store.rows("SELECT sum(emitted), sum(accepted), sum(proposed) FROM round FINAL")
    by_part = store.rows(
        "SELECT sum(if(empty(emitted), arraySum(accepted) + rounds, arraySum(emitted))),"
        " sum(arraySum(accepted)), sum(arraySum(k)) FROM request_part FINAL"
    )

    assert [*by_round[0].values()] == [*by_part[0].values()]


def test_nothing_is_lost_on_a_calm_day(walked):
    _, store = walked

    losses = store.rows("SELECT * FROM loss FINAL")

    assert losses == []
