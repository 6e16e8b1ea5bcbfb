"""A llama.cpp server's log, through the real sidecar and service, into the store."""

import json
from pathlib import Path

import pytest

from specscope.queries.delivery import reconciliation
from specscope.store.connection import Store

DATA = Path(__file__).parents[1] / "data" / "llamacpp"


@pytest.mark.slow
def test_a_log_that_grows_while_the_sidecar_is_killed_is_stored_once(pipeline):
    log = pipeline.folder / "server.log"
    pipeline.environment |= {"SPECSCOPE_SOURCES": f"llama.cpp:{log}"}
    del pipeline.environment["SPECSCOPE_RINGS"]
    lines = (DATA / "ngram.log").read_bytes().splitlines(keepends=True)
    pipeline.service()
    ends = [i for i, line in enumerate(lines) if b"stop processing" in line]
    for part in (lines[: ends[1]], lines[ends[1] : ends[3] + 2]):
        append(log, part)
        pipeline.agent()
        pipeline.until(lambda: any(pipeline.spool.glob("walk-*/*")))
        pipeline.kill("agent")
    append(log, lines[ends[3] + 2 :])
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
        (account,) = store.rows(reconciliation())
    assert (boot["engine"], boot["method"]) == ("llama.cpp", "ngram")
    assert boot["ended_at"] is not None
    assert (account["recorded"], account["unaccounted"]) == (len(wanted), 0)
    assert sorted(row["output_tokens"] for row in requests) == sorted(
        timings["predicted_n"] for timings in wanted
    )
    assert sorted((sum(part["k"]), sum(part["accepted"])) for part in parts) == sorted(
        (timings["draft_n"], timings["draft_n_accepted"]) for timings in wanted
    )


@pytest.mark.slow
def test_requests_that_the_log_hides_are_accounted_for_as_lost(pipeline):
    log = pipeline.folder / "server.log"
    pipeline.environment |= {"SPECSCOPE_SOURCES": f"llama.cpp:{log}"}
    lines = (DATA / "ngram.log").read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b"task.n_tokens = 31" not in line))
    pipeline.service()
    pipeline.agent()
    pipeline.until(lambda: b'"end"' in b"".join(map(Path.read_bytes, states(pipeline))))
    pipeline.stop("agent")
    pipeline.stop("service")

    count = len(json.loads((DATA / "ngram.json").read_text()))
    with Store.open(pipeline.store) as store:
        (account,) = store.rows(reconciliation())
        (loss,) = store.rows("SELECT * FROM loss FINAL")
    assert (account["recorded"], account["requests"], account["lost"]) == (count, count - 1, 1)
    assert account["unaccounted"] == 0
    assert (loss["table"], loss["reason"], loss["count"]) == ("request", "unread", 1)


def append(log, lines):
    with log.open("ab") as file:
        file.write(b"".join(lines))


def states(pipeline):
    """What the spool holds of a source whose every batch is acknowledged."""
    return pipeline.spool.glob("walk-*/acknowledged.state")
