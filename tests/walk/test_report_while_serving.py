"""People read while the service owns the store: the report, and any ClickHouse client."""

import json
import subprocess
import sys

import clickhouse_connect


def test_a_report_is_written_through_the_read_endpoint_while_the_service_runs(pipeline):
    pipeline.service()
    pipeline.agent()
    log = pipeline.traffic("traffic", 800, seed=3, pause_us=100)
    pipeline.finish("traffic")
    pipeline.until(pipeline.shipped)
    pipeline.stop("agent")
    out = pipeline.folder / "report"

    run = subprocess.run(
        [sys.executable, "-m", "specscope", "report", "--store", f"http://{pipeline.http}",
         "--out", str(out)],
        capture_output=True,
        text=True,
    )  # fmt: skip

    assert run.returncode in (0, 3), run.stderr
    report = json.loads((out / "report.json").read_text())
    written = sum(
        json.loads(line)["kind"] in ("admitted", "round", "ended")
        for line in log.read_text().splitlines()
    )
    assert report["accounting"] == {"recorded": written, "stored": written, "lost": 0}
    assert report["global_action"] == "no_data"
    assert [replica["replica"] for replica in report["replicas"]] == ["walk"]


def test_any_clickhouse_client_reads_while_the_service_runs(pipeline):
    pipeline.service()
    host, port = pipeline.http.split(":")

    client = clickhouse_connect.get_client(host=host, port=int(port), database="specscope")

    assert client.query("SELECT count() FROM round").result_rows == [(0,)]
