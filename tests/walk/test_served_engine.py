"""`specscope engine serve` as users run it: requests over HTTP become rounds in the store."""

import json
import urllib.request

import pytest
from ports import own_port
from waiting import PATIENCE_S

from specscope.store.connection import Store
from specscope.store.migrate import migrate

POLICY = {
    "policy": 1,
    "kind": "table",
    "seed": 1,
    "arms": [],
    "block_ms": None,
    "burn_in_ms": None,
    "first_pair": 0,
    "share": 0.0,
    "table": [{"class": "prose", "k": 0}],
    "default_k": 3,
}


def complete(port, label):
    body = {"prompt": "SELECT id, name FROM", "max_tokens": 24, "temperature": 0, "seed": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-specscope-class": label},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


@pytest.fixture
def served(pipeline):
    """Two classes asked under a policy that gates one of them, and the store afterwards."""
    from specscope.policy.stored import checked, write_policy

    with Store.open(pipeline.store) as store:
        migrate(store)
        write_policy(store, checked(POLICY), "test", 1)
    port = own_port()
    pipeline.service()
    pipeline.agent()
    pipeline.start(
        "engine", "-m", "specscope", "engine", "serve", "--host", "127.0.0.1", "--port", str(port)
    )

    def up():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return True
        except OSError:
            return False

    pipeline.until(up)
    complete(port, "warm-up")
    pipeline.until(lambda: followed(pipeline))
    answers = {label: complete(port, label) for label in ("prose", "sql")}
    pipeline.stop("engine")
    pipeline.until(pipeline.shipped)
    pipeline.stop("agent")
    pipeline.stop("service")
    with Store.open(pipeline.store) as store:
        yield answers, store


def followed(pipeline):
    """Whether the policy is on the ring's control page, which the hook reads with a round."""
    return any(b'"default_k"' in ring.read_bytes() for ring in pipeline.rings.glob("*.ring"))


@pytest.mark.slow
def test_a_served_request_is_stored_and_a_class_that_is_gated_off_does_not_speculate(served):
    answers, store = served

    rows = {row["class"]: row for row in store.rows("SELECT * FROM request FINAL")}
    parts = store.rows("SELECT class, groupUniqArrayArray(k) AS k FROM request_part GROUP BY class")

    longest = {row["class"]: max(row["k"]) for row in parts}
    assert longest["prose"] == 0
    assert longest["sql"] == 3
    for label, answer in answers.items():
        assert rows[label]["output_tokens"] == answer["usage"]["completion_tokens"]
    [boot] = store.rows("SELECT engine, parameters, isNotNull(ended_at) AS ended FROM boot FINAL")
    assert boot == {"engine": "reference", "parameters": 6426880, "ended": 1}
    assert store.rows("SELECT * FROM loss FINAL WHERE reason = 'tail_unknown'") == []
