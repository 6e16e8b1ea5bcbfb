"""The gate's commands against a store that a running service owns."""

import json
import time

import grpc
import pytest
from ports import own_port
from service.harness import service, service_process

from specscope.cli import main
from specscope.errors import NumberTaken, ServiceError, UsageError
from specscope.gate import calibration
from specscope.gate.arms import arms_of_lengths
from specscope.policy.remote import Remote
from specscope.policy.stored import next_table, read_policies
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store

TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(f"chdb://{tmp_path_factory.mktemp('gate')}/store", apply_token=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A service that takes no policies."""
    with service_process(f"chdb://{tmp_path_factory.mktemp('closed')}/store") as ports:
        yield ports


@pytest.fixture
def where(running):
    return ["--store", f"http://127.0.0.1:{running.http_port}"]


@pytest.fixture
def gate(capsys, monkeypatch):
    def run(*words, token=TOKEN, service=None):
        for name, value in (("APPLY_TOKEN", token), ("SERVICE", service)):
            if value:
                monkeypatch.setenv(f"SPECSCOPE_{name}", value)
            else:
                monkeypatch.delenv(f"SPECSCOPE_{name}", raising=False)
        code = main(["gate", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def table(tmp_path, k, class_="sql"):
    path = tmp_path / f"{class_}-{k}.json"
    path.write_text(json.dumps(GateTable((Cell(k, class_),), 0).as_json()))
    return str(path)


def numbers(running):
    with Store.open(f"http://127.0.0.1:{running.http_port}") as store:
        return [policy.number for policy in read_policies(store)]


def test_apply_show_and_rollback_while_the_service_owns_the_store(running, where, gate, tmp_path):
    first = len(numbers(running)) + 1
    address = f"127.0.0.1:{running.port}"

    code, out, err = gate("apply", *where, table(tmp_path, 4), "--service", address)
    assert (code, err) == (0, "")
    assert f"policy {first} is in force" in out
    code, out, _ = gate("apply", *where, table(tmp_path, 2), service=address)
    assert f"policy {first + 1} is in force" in out

    _, out, _ = gate("show", *where)
    assert out.startswith(f"policy {first + 1} (table)")
    code, out, _ = gate("rollback", *where, service=address)
    assert code == 0
    _, out, _ = gate("show", *where, "--json")
    assert json.loads(out)["table"][0]["k"] == 4
    assert json.loads(out)["policy"] == first + 2


def test_a_dry_run_needs_no_token_and_no_service(running, where, gate, tmp_path):
    before = numbers(running)

    code, out, _ = gate("apply", *where, table(tmp_path, 7), "--dry-run", token=None)

    assert code == 0
    assert "nothing is written" in out
    assert numbers(running) == before


@pytest.mark.parametrize(
    ("service_", "token", "said"),
    [
        (None, TOKEN, "name its service too (--service host:port or SPECSCOPE_SERVICE)"),
        ("open", None, "no token: set SPECSCOPE_APPLY_TOKEN"),
        ("open", "wrong", "this service does not know the token"),
        ("open", "two words", "printable ASCII"),
        ("closed", TOKEN, "accepts no policies"),
        ("nobody", TOKEN, "cannot be reached"),
        ("http", TOKEN, "cannot be reached"),
        ("nowhere", TOKEN, "is not host:port"),
    ],
)
def test_every_refusal_is_one_line_and_changes_nothing(
    running, closed, where, gate, tmp_path, service_, token, said
):
    addresses = {
        "open": f"127.0.0.1:{running.port}",
        "closed": f"127.0.0.1:{closed['grpc']}",
        "nobody": f"127.0.0.1:{own_port()}",
        "http": f"127.0.0.1:{running.http_port}",
    }
    address = addresses.get(service_, service_)
    before = numbers(running)

    code, out, err = gate("apply", *where, table(tmp_path, 5), token=token, service=address)

    assert code in (1, 2)
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert TOKEN not in err
    assert numbers(running) == before


def test_whoever_read_before_another_applied_must_look_again(running, where, gate, tmp_path):
    remote = Remote(f"127.0.0.1:{running.port}", TOKEN)
    with Store.open(where[1]) as store:
        mine = next_table(read_policies(store), GateTable((), 3), now=0)
    gate("apply", *where, table(tmp_path, 6, "chat"), service=remote.address)
    before = numbers(running)

    with pytest.raises(NumberTaken, match="exists already"):
        remote.apply(mine, "mine")

    assert numbers(running) == before


def test_what_the_service_cannot_follow_is_a_usage_error(running):
    remote = Remote(f"127.0.0.1:{running.port}", TOKEN)

    with pytest.raises(UsageError, match="default_k"):
        remote.apply({"policy": 1, "default_k": 999}, "")


def test_a_calibration_starts_and_is_stopped_through_the_service(running, where, gate, tmp_path):
    remote = Remote(f"127.0.0.1:{running.port}", TOKEN)
    gate("apply", *where, table(tmp_path, 1, "code"), service=remote.address)
    window = calibration.Window(arms_of_lengths((0, 4)), minutes=60, block_s=60)

    with Store.open(where[1]) as store:
        number = calibration.start(store, window, now=time.time_ns(), service=remote)
        last = calibration.stop(store, number, service=remote)
        policies = read_policies(store)

    assert [policy.kind for policy in policies[-3:]] == ["table", "blocks", "table"]
    assert (policies[-1].number, policies[-1].stops) == (last, number)
    assert policies[-1].table == policies[-3].table


class Restarting(Remote):
    """A service that cannot be reached for its second and third call."""

    calls = 0

    def apply(self, body, note):
        Restarting.calls += 1
        if Restarting.calls in (2, 3):
            raise ServiceError("cannot be reached")
        return super().apply(body, note)


def test_a_calibration_is_stopped_once_a_restarted_service_is_there(running, where, gate, tmp_path):
    remote = Restarting(f"127.0.0.1:{running.port}", TOKEN)
    gate("apply", *where, table(tmp_path, 2, "code"), service=remote.address)
    slept = []

    with Store.open(where[1]) as store:
        window = calibration.Window(arms_of_lengths((0, 4)), minutes=1, block_s=10)
        number = calibration.start(store, window, now=time.time_ns(), service=remote)
        calibration.stop(store, number, service=remote, sleep=slept.append)
        last = read_policies(store)[-1]

    assert slept == [calibration.PAUSE_S, calibration.PAUSE_S]
    assert last.kind == "table"
    assert last.table.cells[0].k == 2


class Leaving(Remote):
    """A service that is gone for good after its first call."""

    calls = 0

    def apply(self, body, note):
        Leaving.calls += 1
        there = self if Leaving.calls == 1 else Remote(f"127.0.0.1:{own_port()}", TOKEN)
        return Remote.apply(there, body, note)


def test_a_window_that_cannot_be_stopped_says_so_and_a_rollback_ends_it(
    running, where, gate, tmp_path
):
    remote = Leaving(f"127.0.0.1:{running.port}", TOKEN)
    gate("apply", *where, table(tmp_path, 3, "code"), service=remote.address)
    window = calibration.Window(arms_of_lengths((0, 4)), minutes=1, block_s=10)
    slept = []

    with Store.open(where[1]) as store:
        number = calibration.start(store, window, now=time.time_ns(), service=remote)
        with pytest.raises(ServiceError, match=r"ends by itself .*gate rollback"):
            calibration.stop(store, number, service=remote, sleep=slept.append)
        left_open = read_policies(store)[-1]
        code, _, _ = gate("rollback", *where, service=remote.address)
        closed_again = read_policies(store)[-1]

    assert len(slept) == calibration.TRIES
    assert left_open.kind == "blocks"
    assert code == 0
    assert (closed_again.kind, closed_again.table) == ("table", left_open.table)
    assert closed_again.stops == number


def test_a_service_is_named_only_where_the_store_cannot_be_written():
    environ = {"SPECSCOPE_SERVICE": "localhost:7070", "SPECSCOPE_APPLY_TOKEN": TOKEN}

    assert Remote.chosen(environ, None, "clickhouse://host/db") is None
    assert Remote.chosen(environ, None, "chdb:///store") is None
    assert Remote.chosen(environ, None, "http://host:8123") == Remote("localhost:7070", TOKEN)
    assert Remote.chosen(environ, "[::1]:1", "clickhouse://host/db") == Remote("[::1]:1", TOKEN)
    assert Remote.chosen({}, None, "http://host:8123") is None
    assert TOKEN not in repr(Remote("a:1", TOKEN))


def test_a_service_of_before_there_was_such_a_call_is_named():
    error = Remote("a:1", TOKEN)._refused(grpc.StatusCode.UNIMPLEMENTED.name, "Method not found!")

    assert isinstance(error, ServiceError)
    assert "update it" in str(error)
