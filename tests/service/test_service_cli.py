from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from urllib.parse import quote

import pytest
from service.harness import service, service_process
from service.sidecar import exchange
from store.traffic import Traffic
from waiting import PATIENCE_S

from specscope.errors import UsageError
from specscope.service.app import END_S
from specscope.settings import ServiceSettings, host_and_port
from specscope.store.tables import LAYOUTS


def serve(*arguments, **environ):
    kept = {name: value for name, value in os.environ.items() if "SPECSCOPE" not in name}
    return subprocess.run(
        [sys.executable, "-m", "specscope", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=kept | environ,
    )


def one_line(result):
    assert result.returncode in (1, 2), result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("specscope serve: ")
    return result.stderr


def test_no_store_says_how_to_name_one():
    assert "SPECSCOPE_STORE" in one_line(serve())


def test_an_unknown_setting_names_the_nearest(tmp_path):
    result = serve(SPECSCOPE_STROE=f"chdb://{tmp_path}/store")

    assert "did you mean SPECSCOPE_STORE?" in one_line(result)


def test_a_port_in_use_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        for arguments in (
            ("--listen", address, "--http", "127.0.0.1:0"),
            ("--listen", "127.0.0.1:0", "--http", address),
        ):
            text = one_line(serve("--store", f"chdb://{tmp_path}/store", *arguments))
            assert f"cannot listen on {address}: in use" in text


def test_a_store_that_another_process_owns_is_one_line_that_says_where_to_read(tmp_path):
    dsn = f"chdb://{tmp_path}/store"
    with service(dsn) as running:
        text = one_line(serve("--store", dsn, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"))

    assert f"owned by process {os.getpid()}; read it through" in text
    assert f":{running.http_port}" in text


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    text = one_line(
        serve("--store", "clickhouse://127.0.0.1:1/x", "--listen", "127.0.0.1:0",
              "--http", "127.0.0.1:0")
    )  # fmt: skip

    assert "127.0.0.1" in text


def test_a_store_that_can_only_be_read_is_refused_before_batches_come():
    text = one_line(serve("--store", "http://127.0.0.1:1"))

    assert "http://127.0.0.1:1 can only be read from" in text


def test_a_folder_of_something_else_is_no_store_and_stays_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")

    text = one_line(
        serve("--store", f"chdb://{tmp_path}", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    )

    assert "is no store; it contains thesis.tex" in text
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("address", ["localhost", ":1", "host:port", "host:70000", "1.2.3.4"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(UsageError, match="host:port"):
        host_and_port(address)


def test_arguments_win_over_the_environment():
    environ = {"SPECSCOPE_STORE": "chdb:///a", "SPECSCOPE_LISTEN": "127.0.0.2:5"}

    settings = ServiceSettings.from_env(environ, store="chdb:///b")

    assert settings == ServiceSettings("chdb:///b", "127.0.0.2:5", "127.0.0.1:8123")


def test_a_token_that_cannot_be_sent_is_one_line_that_does_not_repeat_it(tmp_path):
    text = one_line(serve(SPECSCOPE_STORE=f"chdb://{tmp_path}/s", SPECSCOPE_APPLY_TOKEN="horse\n"))

    assert "SPECSCOPE_APPLY_TOKEN" in text
    assert "horse" not in text


def test_help_says_how_policies_may_change_and_settings_keep_the_token_to_themselves():
    settings = ServiceSettings.from_env(
        {"SPECSCOPE_STORE": "chdb:///a", "SPECSCOPE_APPLY_TOKEN": "horse"}
    )

    assert "SPECSCOPE_APPLY_TOKEN" in serve("--help").stdout
    assert settings.apply_token == "horse"
    assert "horse" not in repr(settings)


def test_names_that_kubernetes_injects_are_ignored():
    environ = {"SPECSCOPE_STORE": "chdb:///a", "SPECSCOPE_PORT": "tcp://10.0.0.1:7070"}

    assert ServiceSettings.from_env(environ).store == "chdb:///a"


def test_it_says_where_it_serves_and_ends_cleanly_on_a_signal(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "specscope", "serve", "--json", "--store",
         f"chdb://{tmp_path}/store", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    where = json.loads(process.stdout.readline())
    with urllib.request.urlopen(f"http://127.0.0.1:{where['http']}/health") as answer:
        assert answer.read() == b"ok\n"

    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert errors == ""


def test_nobody_else_can_read_a_file_of_the_store(tmp_path):
    store = tmp_path / "store"
    with service_process(f"chdb://{store}") as ports:
        exchange(ports["grpc"], Traffic(pairs=1).messages())
        modes = {path: mode(path) for path in (store, *store.rglob("*"))}

    assert {".sql", ".json", ".bin", ".txt", ""} <= {path.suffix for path in modes}
    assert {path for path, found in modes.items() if found & 0o077} == set()


def mode(path):
    """Permissions of a file; none of one that is gone, or only points to another."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat().st_mode
        return 0 if stat.S_ISLNK(found) else found
    return 0


def test_a_signal_ends_it_whatever_the_engine_does():
    code = (
        "import threading, time; from specscope.service import app; app.END_S = 0.1; "
        "app._end_soon(); threading.Thread(target=time.sleep, args=(600,)).start()"
    )

    ended = subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S, capture_output=True)

    assert ended.returncode == 0


def test_a_signal_ends_it_soon_while_queries_run(tmp_path):
    slow = "SELECT count() FROM numbers(1900000000) WHERE sipHash64(sipHash64(number)) = 1"
    with service_process(f"chdb://{tmp_path}/store") as ports:
        url = f"http://127.0.0.1:{ports['http']}/?query={quote(slow)}"
        asking = [threading.Thread(target=ask, args=(url,), daemon=True) for _ in range(2)]
        for thread in asking:
            thread.start()
        time.sleep(1.0)
        started = time.monotonic()

    assert time.monotonic() - started < END_S


def ask(url):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=PATIENCE_S).read()


def test_the_statements_for_a_cluster_are_printed():
    result = serve("--cluster", "main")

    assert result.returncode == 0
    assert result.stdout.count("CREATE TABLE") == 2 * len(LAYOUTS)
    assert "ON CLUSTER `main`" in result.stdout
