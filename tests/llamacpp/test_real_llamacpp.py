"""A real server under requests of several kinds: the store holds its own counts, all of them.

LLAMACPP_SERVER names the binary and LLAMACPP_MODEL the model; see environment.sh.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from ports import own_port

sys.path.insert(0, str(Path(__file__).parents[1] / "walk"))

from pipeline import Pipeline

from specscope.store.connection import Store

SERVER, MODEL = os.environ.get("LLAMACPP_SERVER"), os.environ.get("LLAMACPP_MODEL")
MODES = {
    "none": [],
    "ngram": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2",
              "--spec-ngram-simple-size-m", "6"],
    "draft": ["-md", MODEL or "", "--spec-type", "draft-simple", "--spec-draft-n-max", "4"],
}  # fmt: skip
PROMPTS = (
    "one two three one two three one two three one two",
    "A harbour at dawn, seen from a small boat:",
    "red green blue red green blue red green blue",
)
pytestmark = [
    pytest.mark.llamacpp,
    pytest.mark.skipif(not (SERVER and MODEL), reason="LLAMACPP_SERVER and LLAMACPP_MODEL"),
]


@pytest.fixture
def pipeline(tmp_path):
    running = Pipeline(tmp_path)
    yield running
    running.close()


class Llama:
    """One server that appends to a log."""

    def __init__(self, log, *flags):
        self.port = own_port()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [SERVER, "-m", MODEL, "--host", "127.0.0.1", "--port", str(self.port), "-lv", "4",
                 "-c", "2048", "-np", "2", "-t", "1", "--poll", "0", *flags],
                env=os.environ | {"LLAMA_TRACE": "1"}, stdout=file, stderr=file,
            )  # fmt: skip
        self.timings = []

    def up(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return True
        except OSError:
            return False

    def ask(self, prompt, tokens, **more):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, **more}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            self.timings.append(json.load(answer)["timings"])

    def traffic(self):
        """Eight requests over two slots: ended by length, by a stop string, by the model."""
        asked = [
            threading.Thread(target=self.ask, args=(prompt, 12 + 7 * i), kwargs=more)
            for i, prompt in enumerate(PROMPTS)
            for more in ({"ignore_eos": True}, {"stop": ["three", "boat"]})
        ]
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        self.ask(PROMPTS[0], 16, ignore_eos=True)
        self.ask(PROMPTS[1], 1)

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.mark.parametrize("mode", MODES)
def test_accepted_and_proposed_equal_the_servers_own_on_every_request(pipeline, mode):
    log = pipeline.folder / "server.log"
    pipeline.environment |= {"SPECSCOPE_SOURCES": f"llama.cpp:{log}"}
    pipeline.service()
    pipeline.agent()
    timings = []
    for _ in range(2):  # the second start appends to the same log
        llama = Llama(log, *MODES[mode])
        try:
            pipeline.until(llama.up)
            llama.traffic()
        finally:
            llama.stop()
        timings += llama.timings
    pipeline.stop("agent")
    pipeline.stop("service")

    with Store.open(pipeline.store) as store:
        boots = store.rows("SELECT * FROM boot FINAL")
        requests = store.rows("SELECT * FROM request FINAL")
        parts = {
            (part["boot"], part["request"]): part
            for part in store.rows("SELECT * FROM request_part FINAL")
        }
        assert store.rows("SELECT * FROM loss FINAL WHERE reason = 'unread'") == []
    assert len(boots) == 2
    assert len(requests) == len(timings) == 16
    none = {"k": [], "accepted": []}
    ours = []
    for row in requests:
        part = parts.get((row["boot"], row["request"]), none)
        counts = row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]
        ours.append((*counts, round(row["decode_ms"]), sum(part["k"]), sum(part["accepted"])))
    own = [
        (
            each["prompt_n"] + each["cache_n"], each["cache_n"], each["predicted_n"],
            round(each["predicted_ms"]), each.get("draft_n", 0), each.get("draft_n_accepted", 0),
        )
        for each in timings
    ]  # fmt: skip
    assert sorted((*row[:3], *row[4:]) for row in ours) == sorted(
        (*row[:3], *row[4:]) for row in own
    )
    spent = [sorted(row[3] for row in rows) for rows in (ours, own)]
    assert spent[0] == pytest.approx(spent[1], abs=1)
    if mode != "none":
        assert sum(row[4] for row in own) > 0
