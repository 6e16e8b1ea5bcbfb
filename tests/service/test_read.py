from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor, wait

import clickhouse_connect
import pyarrow as pa
import pytest
from service.harness import service
from service.sidecar import acknowledged, exchange
from store.traffic import Traffic
from waiting import PATIENCE_S, until

from specscope import queries
from specscope.errors import StoreError
from specscope.service import reader
from specscope.service.guard import Statement
from specscope.service.reader import Question, Reader, Unanswered
from specscope.store.connection import Store, error_code
from specscope.store.migrate import migrate


@pytest.fixture(scope="module")
def traffic():
    return Traffic()


@pytest.fixture(scope="module")
def running(tmp_path_factory, traffic):
    dsn = f"chdb://{tmp_path_factory.mktemp('read')}/store"
    with service(dsn) as running_:
        exchange(running_.port, traffic.messages())
        yield running_


@pytest.fixture
def url(running):
    return f"http://127.0.0.1:{running.http_port}"


def get(url, path="/", body=None, **params):
    query = urllib.parse.urlencode(params)
    request = urllib.request.Request(f"{url}{path}?{query}", data=body)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        error.add_note(error.read().decode())
        raise


def refusal(url, **params):
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(url, **params)
    return raised.value.code, raised.value.headers["X-ClickHouse-Exception-Code"]


def test_our_own_store_reads_through_it(url, traffic):
    with Store.open(url) as store:
        rows = store.rows(
            "SELECT count() AS n, sum(emitted) AS e FROM round FINAL "
            "WHERE boot = 'b0' AND arm IN {arms:Array(String)} AND seq < {most:UInt64}",
            {"arms": ["k0", "k4", "it's"], "most": 10**6},
        )
        boots = store.rows(queries.boots())

    emitted = sum(s.emitted for r in traffic.rounds for s in r.sequences)
    assert rows == [{"n": len(traffic.rounds), "e": emitted}]
    assert boots[0]["replica"] == "r0"


def test_our_own_store_cannot_write_through_it(url, traffic):
    with Store.open(url) as store:
        with pytest.raises(StoreError) as raised:
            store.insert("round", traffic.batches()[0]["round"])
        with pytest.raises(StoreError):
            store.command("DROP TABLE round")
        with pytest.raises(StoreError):
            migrate(store) or store.command("CREATE TABLE t (x Int8) ENGINE = Memory")

    assert error_code(raised.value) == 36  # rows are no text, and so no statement


def test_clickhouse_connect_reads_through_it_in_its_own_format(url, traffic):
    host, port = url.removeprefix("http://").split(":")

    client = clickhouse_connect.get_client(host=host, port=int(port), database="specscope")

    result = client.query(
        "SELECT seq, arm, classes FROM round FINAL WHERE boot = 'b0' AND k >= {k:UInt8} "
        "ORDER BY seq",
        parameters={"k": 0},
    )
    assert [row[0] for row in result.result_rows] == [r.seq for r in traffic.rounds]
    assert result.result_rows[0][2] == ["prose"]


def test_a_statement_may_be_in_the_address_the_body_or_both(url):
    assert get(url, query="SELECT 1") == b"1\n"
    assert get(url, body=b"SELECT 2") == b"2\n"
    assert get(url, body=b" + 2", query="SELECT 1") == b"3\n"


def test_the_format_is_that_of_the_text_then_of_the_address_then_tabs(url):
    assert get(url, query="SELECT 1 AS a FORMAT JSONEachRow") == b'{"a":1}\n'
    assert get(url, query="SELECT 1 AS a", default_format="CSVWithNames") == b'"a"\n1\n'
    assert get(url, query="SELECT 1 AS a, 2") == b"1\t2\n"


def test_arrow_comes_as_arrow(url, traffic):
    body = get(url, query="SELECT * FROM request_part FINAL FORMAT ArrowStream")

    rows = pa.ipc.open_stream(body).read_all()

    assert rows.column("rounds").to_pylist()
    assert rows.schema.field("class").type == pa.string()


def test_bound_parameters_are_values(url):
    text = "'; DROP TABLE round; --\\n"

    got = get(url, query="SELECT {x:String} FORMAT TSVRaw", param_x=text)

    assert got == b"'; DROP TABLE round; --\n\n"


def test_what_is_refused_says_so_with_a_code(url):
    assert refusal(url, query="SELECT file('/etc/hostname')") == (403, "497")
    assert refusal(url, query="DROP TABLE round") == (403, "497")
    assert refusal(url, query="SELECT * FROM nowhere") == (400, "60")
    assert refusal(url, query="SELECT 1", database="system") == (404, "81")
    assert refusal(url, query="SELECT 1", default_format="CapnProto") == (400, "36")


def test_settings_in_the_address_change_nothing(url):
    with pytest.raises(urllib.error.HTTPError):
        get(url, query="DROP TABLE round", readonly="0")

    assert get(url, query="SELECT 1", readonly="0", max_execution_time="0") == b"1\n"


@pytest.mark.parametrize("value", ["{}", "{'a': 'b'}, max_memory_usage = '0'"])
def test_the_value_of_a_setting_is_a_text_whatever_it_looks_like(url, value):
    # A map there would be code 170.
    assert refusal(url, query="SELECT 1", session_timezone=value) == (400, "36")


def test_a_result_that_is_too_large_is_refused_by_the_limits(url):
    assert refusal(url, query="SELECT number FROM numbers(3000000)") == (500, "396")


def test_nothing_of_a_query_that_failed_halfway_comes_with_the_next_answer(url):
    fails = "SELECT throwIf(number = 200000), 'secret' FROM numbers(300000)"
    for _ in range(2):  # both connections
        assert refusal(url, query=fails) == (400, "395")

    for _ in range(4):
        assert get(url, query="SELECT 1") == b"1\n"


def test_memory_is_limited(url):
    query = "SELECT length(groupArray(repeat('x', 1000000) || toString(number))) FROM numbers(5000)"

    assert refusal(url, query=query) == (500, "241")


def test_the_connections_of_the_endpoint_cannot_write_even_past_the_guard(running, monkeypatch):
    monkeypatch.setattr(reader, "guarded", lambda sql, *_, **__: Statement(sql))
    past = Reader.open(running.store)

    for sql in ("DROP TABLE round", "SET readonly = 0", "SET max_execution_time = 0"):
        with pytest.raises(Unanswered) as raised:
            past._run("q", Question(sql))
        assert raised.value.code == 164


def test_reading_does_not_hold_up_writing(running, url, tmp_path):
    pipes = [tmp_path / name for name in ("pipe_one", "pipe_other")]
    for pipe in pipes:
        os.mkfifo(pipe)
        columns = f"(x String) ENGINE = File('TSV', '{pipe}')"
        running.store.command(f"CREATE TABLE {pipe.name} {columns}")
    more = Traffic(seed=5, boot="more", pairs=1)

    with ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(get, url, query=f"SELECT x FROM {pipe.name}") for pipe in pipes]
        feeds = [until(lambda pipe=pipe: fed(pipe)) for pipe in pipes]
        down = exchange(running.port, more.messages(), sources=[("r0", "more")])
        still_reading = not any(future.done() for future in reading)
        for feed in feeds:
            os.close(feed)
        wait(reading)
    for pipe in pipes:
        running.store.command(f"DROP TABLE {pipe.name}")

    assert still_reading
    assert len(acknowledged(down)) == len(more.messages())


def fed(pipe):
    """The end to write into, once a query waits at the other."""
    with contextlib.suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_health_ping_and_metrics_answer(url):
    refusal(url, query="DROP TABLE round")

    assert get(url, "/health") == b"ok\n"
    assert get(url, "/ping") == b"Ok.\n"
    assert b'specscope_stored_rows_total{table="round"}' in get(url, "/metrics")
    assert b'specscope_queries_total{outcome="refused"}' in get(url, "/metrics")


def test_an_empty_statement_is_how_clients_ask_whether_anybody_is_there(url):
    assert get(url) == b"Ok.\n"
