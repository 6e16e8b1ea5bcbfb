"""A signal ends the service in time, whatever its readers have the engine do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from urllib.parse import quote

from waiting import PATIENCE_S, until

from specscope.service.app import END_S
from specscope.service.reader import PER_READER

# Within one block, where the engine does not look whether it is told to end.
LONG = "SELECT sumMap(range(number), range(number)) FROM numbers(100000)"


def asked(port, sql):
    url = f"http://127.0.0.1:{port}/?query={quote(sql)}"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


def test_a_signal_ends_the_service_although_queries_do_not_end(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "specscope", "serve", "--json", "--store",
         f"chdb://{tmp_path}/store", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        port = json.loads(process.stdout.readline())["http"]
        readers = [threading.Thread(target=asked, args=(port, LONG)) for _ in range(PER_READER)]
        for reader in readers:
            reader.start()
        text = "SELECT count() FROM system.tables"
        until(lambda: asked(port, text))
        time.sleep(2.0)

        began = time.monotonic()
        process.terminate()
        code = process.wait(timeout=PATIENCE_S)
        took = time.monotonic() - began
    finally:
        process.kill()
        process.communicate()

    assert code == 0
    assert took < END_S + 5.0  # Kubernetes kills after 30
    for reader in readers:
        reader.join(timeout=PATIENCE_S)
