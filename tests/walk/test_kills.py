"""Sidecar and service killed at random moments under load: nothing is lost, nothing comes twice."""

import json
import signal
import subprocess
import sys
import time
from random import Random

import pytest
from pipeline import HERE

KILLS = 24


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_recorded_is_stored_plus_lost_after_two_dozen_kills(pipeline):
    random = Random(20261129)
    pipeline.service()
    pipeline.agent()
    logs = [pipeline.traffic(f"traffic{i}", 60_000, seed=i, pause_us=1500) for i in range(2)]

    for number in range(KILLS):
        time.sleep(random.uniform(0.05, 2.0))
        if number % 2:
            pipeline.kill("agent")
            pipeline.agent()
        else:
            pipeline.kill("service")
            pipeline.service(wait=number % 4 == 0)
    still_writing = all(process.poll() is None for process in pipeline.running.values())
    pipeline.until(pipeline.healthy, 60)
    for i in range(2):
        pipeline.finish(f"traffic{i}", within=300)
    pipeline.until(pipeline.shipped, 120)
    pipeline.stop("agent", within=120)
    pipeline.stop("service", within=120)

    counts = recount(pipeline, logs)
    assert still_writing, "the load ended before the kills did"
    assert counts["recorded"] > 20_000
    assert counts["recorded"] == counts["stored"] + counts["lost"]
    assert counts["twice"] == 0
    assert counts["lost"] > 0 or counts["wrong_sum"] == 0


@pytest.mark.parametrize("table", ["round", "batch"])
@pytest.mark.timeout(180)
def test_a_service_that_dies_between_insert_and_acknowledgement_stores_once(pipeline, table):
    dying = pipeline.start("service", str(HERE / "dying_service.py"), table, "2")
    pipeline.until(pipeline.healthy, 60)
    pipeline.agent()
    log = pipeline.traffic("traffic", 2500, seed=5, pause_us=1000)

    assert dying.wait(60) == -signal.SIGKILL
    pipeline.running.pop("service")
    pipeline.service()
    pipeline.finish("traffic")
    pipeline.until(pipeline.shipped, 90)
    pipeline.stop("agent")
    pipeline.stop("service")

    counts = recount(pipeline, [log])
    assert counts["recorded"] == counts["stored"] > 2500
    assert (counts["lost"], counts["twice"], counts["wrong_sum"]) == (0, 0, 0)


def recount(pipeline, logs):
    run = subprocess.run(
        [sys.executable, str(HERE / "recount.py"), str(pipeline.folder / "store"), *map(str, logs)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)
