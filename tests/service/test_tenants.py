"""Whole services that ask who calls: TLS, tokens, tenants, one stream a source."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from urllib.parse import quote

import grpc
import pytest
from service.harness import service
from service.sidecar import exchange, hello
from service.tokens import CERTIFICATES, write_tokens
from store.traffic import Traffic
from waiting import PATIENCE_S

from specscope.store.connection import Store
from specscope.store.tables import LAYOUTS
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.channel import Security
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

OURS = Security(ca=CERTIFICATES / "ours-ca.pem")
TLS = {
    "tls_cert": CERTIFICATES / "ours-service.pem",
    "tls_key": CERTIFICATES / "ours-service.key",
}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    """A service behind TLS with two tenants, each with its rows."""
    folder = tmp_path_factory.mktemp("tenants")
    tokens = write_tokens(
        folder / "tokens.toml",
        a_writes="a: publish",
        b_writes="b: publish",
        a_reads="a: read",
        b_reads="b: read",
        reads="read",
        counts="metrics",
        applies="apply",
    )
    with Store.open(f"chdb://{folder}/store") as store:  # tables of another version
        for name, columns in (("newer", "replica String"), ("pooled", "replicas Array(String)")):
            store.command(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
        store.command("INSERT INTO newer VALUES ('a-0'), ('b-0'), ('b-1')")
        store.command("INSERT INTO pooled VALUES (['a-0', 'b-0'])")
    with service(f"chdb://{folder}/store", told={"tokens": tokens, **TLS}) as running:
        for replica in ("a-0", "b-0"):
            traffic = Traffic(replica=replica, seed=len(replica))
            exchange(
                running.port, traffic.messages(), sources=[(replica, "b0")], security=OURS,
                token=f"{replica[0]}_writes",
            )  # fmt: skip
        yield running


def sql(running, text, token, **headers):
    context = ssl.create_default_context(cafile=CERTIFICATES / "ours-ca.pem")
    request = urllib.request.Request(
        f"https://127.0.0.1:{running.http_port}/?query={quote(text)}",
        headers={"Authorization": f"Bearer {token}", **headers} if token else headers,
    )
    with urllib.request.urlopen(request, context=context, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def status(running, text, token, **headers):
    with pytest.raises(urllib.error.HTTPError) as raised:
        sql(running, text, token, **headers)
    return raised.value.code


def code(running, *batches, sources, token, security=OURS):
    with pytest.raises(grpc.RpcError) as raised:
        exchange(running.port, batches, sources=sources, token=token, security=security)
    return raised.value.code().name


def test_a_tenant_reads_its_own_rows_alone(tenants):
    text = "SELECT DISTINCT replica FROM {} FINAL ORDER BY replica"

    for table in ("round", "boot", "request", "request_part", "batch"):
        assert sql(tenants, text.format(table), "a_reads") == "a-0\n"
        assert sql(tenants, text.format(table), "b_reads") == "b-0\n"
        assert sql(tenants, text.format(table), "reads") == "a-0\nb-0\n"


PEEKS = [
    "SELECT count() FROM round WHERE replica = 'b-0'",
    "SELECT count() FROM specscope.round AS a WHERE a.replica LIKE 'b%'",
    "SELECT count() FROM (SELECT * FROM round) WHERE replica = 'b-0'",
    "WITH x AS (SELECT * FROM round) SELECT count() FROM x WHERE replica = 'b-0'",
    "SELECT count() FROM numbers(1) AS n JOIN round AS r ON 1 WHERE r.replica = 'b-0'",
    "SELECT count() FROM boot AS n LEFT JOIN round AS r USING boot WHERE r.replica = 'b-0'",
    "SELECT count() FROM numbers(9) WHERE ('b-0') IN (SELECT replica FROM round)",
    "SELECT ('b-0') IN (SELECT replica FROM boot)",
    "SELECT countIf(replica = 'b-0') FROM round FINAL SETTINGS final = 1",
    "SELECT count() FROM round WHERE replica = 'b-0' UNION DISTINCT SELECT 0",
    "SELECT count() FROM round ARRAY JOIN classes AS c WHERE replica = 'b-0'",
    "SELECT exists(SELECT 1 FROM round WHERE replica = 'b-0')",
    "SELECT (SELECT count() FROM round WHERE replica = 'b-0')",
    "SELECT count() FROM hour",
]


@pytest.mark.parametrize("text", PEEKS)
def test_no_way_of_asking_shows_another_tenant_s_rows(tenants, text):
    assert sql(tenants, text, "a_reads") == "0\n"


@pytest.mark.parametrize(
    "columns",
    [
        "count()",
        "min(started_at), max(started_at)",
        "toDate(min(started_at)), count()",
        "uniqExact(_part) > 0, count()",
        "max(seq), min(replica), max(replica)",
    ],
)
def test_what_the_engine_answers_from_what_it_keeps_of_parts_is_filtered_too(tenants, columns):
    own = sql(tenants, f"SELECT {columns} FROM round WHERE replica = 'b-0'", "reads")

    assert sql(tenants, f"SELECT {columns} FROM round", "b_reads") == own


TELLTALE = "throwIf(replica = 'b-0', 'there is one')"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count() FROM round WHERE {TELLTALE} = 0",
        f"SELECT count() FROM round FINAL WHERE {TELLTALE} = 0",
        "SELECT count() FROM round WHERE replica = 'b-0' AND throwIf(seq >= 0) = 0",
        f"SELECT count() FROM round WHERE seq >= 0 AND {TELLTALE} = 0 AND boot = 'b0'",
        f"SELECT count() FROM (SELECT * FROM round) WHERE {TELLTALE} = 0",
        f"SELECT sum({TELLTALE}) FROM round",
        f"SELECT count() FROM round GROUP BY {TELLTALE}",
        "SELECT count() FROM round AS r JOIN boot AS b ON throwIf(b.replica = 'b-0') = r.k",
        f"SELECT seq FROM round WHERE {TELLTALE} = 0 ORDER BY started_at DESC LIMIT 1",
        f"SELECT count() FROM round ARRAY JOIN arrayMap(x -> {TELLTALE}, classes) AS y",
    ],
)
def test_an_error_does_not_tell_of_another_tenant_s_rows(tenants, text):
    sql(tenants, text, "a_reads")
    assert status(tenants, text, "b_reads") == 400


def test_what_would_pass_the_filter_is_refused(tenants):
    assert status(tenants, "SELECT count() FROM round PREWHERE replica = 'b-0'", "a_reads") == 403
    assert status(tenants, "SELECT count() FROM merge('specscope', 'round')", "a_reads") == 403
    setting = "SELECT count() FROM round SETTINGS additional_table_filters = {}"
    assert status(tenants, setting, "a_reads") == 403


def test_every_table_of_the_store_is_filtered_or_shared(tenants):
    stored = tenants.store.rows(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
    )

    assert {row["name"] for row in stored} - {"newer", "pooled"} <= set(LAYOUTS)


def test_tables_of_another_version_are_filtered_too(tenants):
    """By what the store has, and not by what this version knows."""
    assert sql(tenants, "SELECT replica FROM newer", "a_reads") == "a-0\n"
    assert sql(tenants, "SELECT count() FROM newer", "reads") == "3\n"
    assert sql(tenants, "SELECT count() FROM pooled", "a_reads") == "0\n"
    assert sql(tenants, "SELECT count() FROM pooled", "reads") == "1\n"


@pytest.mark.parametrize("token", ["", "nobody", "a_writes", "applies", "counts"])
def test_who_has_no_right_to_read_gets_nothing(tenants, token):
    expected = 403 if token in ("a_writes", "applies", "counts") else 401
    assert status(tenants, "SELECT 1", token) == expected


def test_the_ways_in_which_clients_name_a_password(tenants):
    key = {"X-ClickHouse-User": "default", "X-ClickHouse-Key": "a_reads"}
    assert sql(tenants, "SELECT 1", "", **key) == "1\n"

    dsn = f"https://any:a_reads@127.0.0.1:{tenants.http_port}/specscope?ca={OURS.ca}"
    with Store.open(dsn) as store:
        assert store.rows("SELECT DISTINCT replica FROM round") == [{"replica": "a-0"}]


def test_a_tenant_writes_in_the_name_of_its_own_replicas_alone(tenants):
    batch = Traffic(replica="a-9", pairs=1).messages()[0]

    assert code(tenants, sources=[("a-9", "b0")], token="b_writes") == "PERMISSION_DENIED"
    assert code(tenants, sources=[("b-9", "b0"), ("a-9", "b0")], token="b_writes") == (
        "PERMISSION_DENIED"
    )
    assert code(tenants, batch, sources=[("b-9", "b0")], token="b_writes") == "PERMISSION_DENIED"
    assert code(tenants, sources=[("a-9", "b0")], token="a_reads") == "PERMISSION_DENIED"
    assert code(tenants, sources=[("a-9", "b0")], token="") == "UNAUTHENTICATED"
    assert code(tenants, sources=[("a-9", "b0")], token="none") == "UNAUTHENTICATED"
    assert sql(tenants, "SELECT count() FROM round WHERE replica = 'a-9'", "reads") == "0\n"


def test_a_policy_needs_a_token_of_its_own(tenants):
    def apply(token):
        body = {"policy": 1, "kind": "table", "seed": 1, "arms": [], "table": [], "default_k": 2}
        with OURS.channel(f"127.0.0.1:{tenants.port}") as channel:
            policy = wire.Policy(number=1, json=json.dumps(body))
            given = [("authorization", f"Bearer {token}")]
            return TelemetryStub(channel).Apply(policy, timeout=PATIENCE_S, metadata=given)

    for token in ("a_writes", "reads"):
        with pytest.raises(grpc.RpcError) as raised:
            apply(token)
        assert raised.value.code().name == "PERMISSION_DENIED"
    assert apply("applies").number == 1


def test_a_peer_that_speaks_in_the_clear_is_not_served(tenants):
    with (
        pytest.raises(grpc.RpcError) as raised,
        grpc.insecure_channel(f"127.0.0.1:{tenants.port}") as channel,
    ):
        list(TelemetryStub(channel).Publish(iter([hello()]), timeout=5))

    assert raised.value.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def test_a_service_that_another_authority_signed_is_not_believed(tenants):
    theirs = Security(ca=CERTIFICATES / "theirs-ca.pem")

    assert code(tenants, sources=[("a-9", "b0")], token="a_writes", security=theirs) == (
        "UNAVAILABLE"
    )
