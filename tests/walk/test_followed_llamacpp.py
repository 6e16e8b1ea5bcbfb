"""A llama.cpp server's log, through the real sidecar and service, into the store."""

import json
from pathlib import Path

import pytest

from specscope.store.connection import Store

DATA = Path(__file__).parents[1] / "data" / "llamacpp"


@pytest.mark.slow
def test_a_log_that_grows_while_the_sidecar_is_killed_is_stored_once(pipeline):
    log = pipeline.folder / "server.log"
    pipeline.environment |= {"SPECSCOPE_SOURCES": f"llama.cpp:{log}"}
    del pipeline.environment["SPECSCOPE_RINGS"]
    lines = (DATA / "ngram.log").read_bytes().splitlines(keepends=True)
    pipeline.service()
    third = len(lines) // 3
    for part in (lines[:third], lines[third : 2 * third]):
        append(log, part)
        pipeline.agent()
        pipeline.until(lambda: any(pipeline.spool.glob("walk-*/*")))
        pipeline.kill("agent")
    append(log, lines[2 * third :])
    pipeline.agent()
    pipeline.until(lambda: b'"end"' in b"".join(map(Path.read_bytes, states(pipeline))))
    pipeline.stop("agent")
    pipeline.stop("service")

    wanted = json.loads((DATA / "ngram.json").read_text())
    with Store.open(pipeline.store) as store:
        (boot,) = store.rows("SELECT * FROM boot FINAL")
        requests = store.rows("SELECT * FROM request FINAL")
        parts = store.rows("SELECT * FROM request_part FINAL")
        assert store.rows("SELECT * FROM loss FINAL") == []
        assert store.rows("SELECT * FROM round FINAL") == []
    assert (boot["engine"], boot["method"], boot["ended_at"] is None) == (
        "llama.cpp",
        "ngram",
        False,
    )
    assert sorted(row["output_tokens"] for row in requests) == sorted(
        timings["predicted_n"] for timings in wanted
    )
    assert sorted((sum(part["k"]), sum(part["accepted"])) for part in parts) == sorted(
        (timings["draft_n"], timings["draft_n_accepted"]) for timings in wanted
    )


def append(log, lines):
    with log.open("ab") as file:
        file.write(b"".join(lines))


def states(pipeline):
    """What the spool holds of a source whose every batch is acknowledged."""
    return pipeline.spool.glob("walk-*/acknowledged.state")
