"""Sidecar and service killed at random moments under load: nothing is lost, nothing comes twice."""

import json
import signal
import subprocess
import sys
import time
from random import Random

import pytest
from pipeline import HERE
from waiting import PATIENCE_S

KILLS = 24
FOR_EVER = 10**9


@pytest.mark.slow
def test_recorded_is_stored_plus_lost_after_two_dozen_kills(pipeline):
    random = Random(20261129)
    pipeline.service()
    pipeline.agent()
    logs = [pipeline.traffic(f"traffic{i}", FOR_EVER, seed=i, pause_us=1500) for i in range(2)]

    for number in range(KILLS):
        time.sleep(random.uniform(0.05, 2.0))
        if number % 2:
            pipeline.kill("agent")
            pipeline.agent()
        else:
            pipeline.kill("service")
            pipeline.service(wait=number % 4 == 0)
    pipeline.until(pipeline.healthy)
    for i in range(2):
        pipeline.stop(f"traffic{i}")
    pipeline.until(pipeline.shipped)
    pipeline.stop("agent")
    pipeline.stop("service")

    counts = recount(pipeline, logs)
    assert counts["recorded"] > 2000
    assert counts["recorded"] == counts["stored"] + counts["lost"]
    assert counts["twice"] == 0
    assert counts["lost"] > 0 or counts["wrong_sum"] == 0


@pytest.mark.parametrize("table", ["round", "batch"])
def test_a_service_that_dies_between_insert_and_acknowledgement_stores_once(pipeline, table):
    dying = pipeline.start("service", str(HERE / "dying_service.py"), table, "2")
    pipeline.until(pipeline.healthy)
    pipeline.agent()
    log = pipeline.traffic("traffic", FOR_EVER, seed=5, pause_us=1000)

    pipeline.running.pop("service")
    assert dying.wait(PATIENCE_S) == -signal.SIGKILL
    pipeline.service()
    pipeline.until(lambda: log.stat().st_size > 300_000)  # some hundreds of records
    pipeline.stop("traffic")
    pipeline.until(pipeline.shipped)
    pipeline.stop("agent")
    pipeline.stop("service")

    counts = recount(pipeline, [log])
    assert counts["recorded"] == counts["stored"] > 200
    assert (counts["lost"], counts["twice"], counts["wrong_sum"]) == (0, 0, 0)


def recount(pipeline, logs):
    run = subprocess.run(
        [sys.executable, str(HERE / "recount.py"), str(pipeline.folder / "store"), *map(str, logs)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)
