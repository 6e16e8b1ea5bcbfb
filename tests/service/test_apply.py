"""An operator's policy through the service: who may, what is refused, when sidecars have it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from service.harness import service, service_process
from service.sidecar import hello
from waiting import PATIENCE_S

from specscope import queries
from specscope.policy.row import policy_row
from specscope.service import app
from specscope.service.access import Access, Denied
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A service that looks for policies in its store once, and then has to be told."""
    dsn = f"chdb://{tmp_path_factory.mktemp('apply')}/store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "POLICY_S", 3600.0)
        with service(dsn, apply_token=TOKEN) as running:
            yield running


def body(number, k=4, **more):
    return {"policy": number, "kind": "table", "seed": 7, "arms": [], "table": [],
            "default_k": k, **more}  # fmt: skip


def apply(port, number, text, *, token=TOKEN, note="", metadata=None):
    if metadata is None:
        metadata = [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        policy = wire.Policy(number=number, json=text, note=note)
        return TelemetryStub(channel).Apply(policy, timeout=PATIENCE_S, metadata=metadata)


def refusal(*arguments, **options):
    with pytest.raises(grpc.RpcError) as error:
        apply(*arguments, **options)
    return error.value.code().name, error.value.details()


def stored(running):
    return running.store.rows(queries.policies())


def next_number(running):
    return len(stored(running)) + 1


def test_what_is_stored_is_what_was_applied(running):
    number, before = next_number(running), time.time_ns()

    applied = apply(running.port, number, json.dumps(body(number)), note="for sql")

    assert applied.number == number
    row = stored(running)[-1]
    assert json.loads(row["table"]) == body(number)
    assert (row["policy"], row["kind"], row["note"]) == (number, "table", "for sql")
    assert before <= row["created_at"] <= time.time_ns()


def test_sidecars_have_a_policy_at_once_and_not_when_the_store_is_next_asked(running):
    number, over = next_number(running), threading.Event()

    def connected():
        yield hello(policy=number - 1)
        over.wait(PATIENCE_S)

    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        stream = TelemetryStub(channel).Publish(connected(), timeout=PATIENCE_S)
        assert next(stream).HasField("resume")

        apply(running.port, number, json.dumps(body(number)), note="not for sidecars")
        pushed = next(stream)
        late = list(TelemetryStub(channel).Publish(iter([hello()]), timeout=PATIENCE_S))
        over.set()

    assert pushed.policy.number == number
    assert json.loads(pushed.policy.json) == body(number)
    assert pushed.policy.note == ""
    assert [m.policy.number for m in late if m.HasField("policy")] == [number]


def test_of_operators_who_apply_at_the_same_time_one_wins(running):
    number, gate = next_number(running), threading.Barrier(6)

    def attempt(k):
        gate.wait()
        try:
            apply(running.port, number, json.dumps(body(number, k)))
        except grpc.RpcError as error:
            return error.code().name
        return k

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(attempt, range(6)))

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert outcomes.count("ALREADY_EXISTS") == 5
    rows = running.store.rows("SELECT `table` FROM policy WHERE policy = {n:UInt32}", {"n": number})
    assert [json.loads(row["table"])["default_k"] for row in rows] == [winner]


def test_a_number_that_is_not_the_next_is_refused(running):
    number = next_number(running)

    code, said = refusal(running.port, number + 1, json.dumps(body(number + 1)))

    assert (code, said) == (
        "ALREADY_EXISTS", f"policy {number + 1} is not the next one; that is {number}"
    )  # fmt: skip
    assert next_number(running) == number


def test_a_number_at_the_end_of_its_column_locks_nobody_out(running):
    number = next_number(running)
    forged = policy_row(body(4_294_967_295), "forged", 1)
    running.store.insert("policy", forged)

    applied = apply(running.port, number, json.dumps(body(number)))

    assert applied.number == number
    assert stored(running)[-1]["policy"] == number
    assert refusal(running.port, 4_294_967_295, json.dumps(body(4_294_967_295)))[0] == (
        "INVALID_ARGUMENT"
    )


BROKEN = {
    "no JSON": "{",
    "a list": "[]",
    "another number": body(99),
    "a draft longer than any": body(0, k=300),
    "a cell without k": body(0, table=[{"class": "sql"}]),
    "blocks without arms": body(0, kind="blocks", block_ms=1000),
    "a kind that nobody knows": body(0, kind="tables"),
    "a seed that no column holds": body(0, seed=1 << 80),
    "a burn-in that is no number": body(0, burn_in_ms="long"),
    "what is no JSON to others": body(0, guardrail=float("nan")),
    "more than a ring's page": body(0, guardrail="x" * 70_000),
    "depth": "[" * 60_000,
}


@pytest.mark.parametrize("what", BROKEN.values(), ids=BROKEN.keys())
def test_a_policy_that_the_hook_could_not_follow_is_refused_and_nothing_changes(running, what):
    number = next_number(running)
    if isinstance(what, dict):
        what = json.dumps(what | {"policy": what["policy"] or number})
    before = stored(running)

    code, said = refusal(running.port, number, what)

    assert code == "INVALID_ARGUMENT"
    assert said
    assert len(said.splitlines()) == 1
    assert stored(running) == before


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", TOKEN)],
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer {TOKEN}x")],
        [("authorization", f"Bearer {TOKEN[:-1]}")],
        [("authorization", "Bearer wrong"), ("authorization", f"Bearer {TOKEN}")],
        [("token", f"Bearer {TOKEN}")],
    ],
)
def test_who_does_not_know_the_token_changes_nothing(running, metadata):
    number, before = next_number(running), stored(running)

    code, said = refusal(running.port, number, json.dumps(body(number)), metadata=metadata)

    assert code == "UNAUTHENTICATED"
    assert TOKEN not in said
    assert stored(running) == before


def test_a_token_is_compared_whole():
    access = Access(apply_token=TOKEN)

    assert access.grant("apply", f"Bearer {TOKEN}").rights == {"apply"}
    with pytest.raises(Denied):
        access.grant("apply", "Bearer correct-Horse")


def test_a_service_without_a_token_takes_no_policy_and_says_how_it_would(tmp_path):
    with service_process(f"chdb://{tmp_path}/store", SPECSCOPE_APPLY_TOKEN="") as ports:
        said = [refusal(ports["grpc"], 1, json.dumps(body(1)), token=t) for t in ("", TOKEN)]

    for code, sentence in said:
        assert code == "FAILED_PRECONDITION"
        assert "SPECSCOPE_APPLY_TOKEN" in sentence
