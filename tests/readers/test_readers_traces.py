"""Kineto and Nsight Systems traces with known answers."""

import gzip
import json
import sqlite3

import pytest
from reading import codes, times

from specscope.analyze.collect import analyze

ROUND_US = 10_000
"""Each round: draft 0-1000, verify 1500-7500, sample 8000-8500; 2500 us idle."""

PARTS = (("draft", 0, 1000), ("verify", 1500, 6000), ("sample", 8000, 500))


def kineto(
    rounds=4, keep=lambda n: True, phases=True, device_phases=False, launch="cudaLaunchKernel"
):
    """A trace whose kernels have no telling names; annotations on the host say the phase."""
    events = []
    correlation = 0
    for number in range(rounds):
        start = number * ROUND_US
        events.append(event("user_annotation", "step[DECODE bs=2]", start, ROUND_US))
        for phase, at, length in PARTS:
            correlation += 1
            if phases:
                events.append(event("user_annotation", phase, start + at, length))
            if device_phases:
                events.append(event("gpu_user_annotation", phase, start + at, length))
            events.append(event("cuda_runtime", launch, start + at + 1, 5, correlation))
            if keep(correlation):
                events.append(event("kernel", "k", start + at, length, correlation, device=0))
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def event(cat, name, ts, dur, correlation=None, device=None):
    args = {} if correlation is None else {"correlation": correlation}
    if device is not None:
        args["device"] = device
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


@pytest.mark.parametrize("how", [{"phases": True}, {"phases": False, "device_phases": True}])
def test_phases_come_from_annotations_on_host_or_device(how):
    time = times(kineto(**how))[0]

    assert time.rounds == 4
    assert (time.draft_ms, time.verify_ms, time.sample_ms) == (1.0, 6.0, 0.5)
    assert time.idle_ms == pytest.approx(2.5)
    assert (time.idle_share, time.trace_coverage) == (pytest.approx(0.25), 1.0)
    assert "IDLE_GAPS" in codes(kineto(**how))


def test_idle_is_unknown_where_launches_lack_their_kernels():
    text = kineto(rounds=40, keep=lambda n: n % 10 != 0)

    time = times(text)[0]

    assert time.trace_coverage == pytest.approx(0.9)
    assert (time.idle_ms, time.idle_share) == (None, None)
    assert "TRACE_UNDER_RECORDED" in codes(text)
    assert "IDLE_GAPS" not in codes(text)


def test_a_cut_trace_and_a_packed_trace_are_read(tmp_path):
    text = kineto(rounds=400).encode()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text))

    packed = analyze([str(tmp_path / "t.json.gz")]).as_json()["time"]
    cut = times(text[: len(text) // 2])[0]

    assert (packed["rounds"], packed["verify_ms"]) == (400, pytest.approx(6.0))
    assert cut.verify_ms == pytest.approx(6.0, rel=0.02)


def nsys(path, rounds=4, graph=True, runtime=True):
    """Verification as a graph replay: its kernels stand in GRAPH_TRACE only."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds(id INTEGER, value TEXT);
        INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'cudaGraphLaunch'), (3, 'k');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, correlationId, shortName);
        CREATE TABLE NVTX_EVENTS(start, end, text, textId);
        """
    )
    if graph:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end, deviceId, "
            "correlationId, graphId)"
        )
    if runtime:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, correlationId, nameId)"
        )
    correlation = 0
    for number in range(rounds):
        start = number * ROUND_US
        rows = [(start, start + ROUND_US, f"decode step {number}", None)]
        for phase, at, length in PARTS:
            correlation += 1
            rows.append((start + at, start + at + length, phase, None))
            begin, end = start + at, start + at + length
            table = "GRAPH_TRACE" if phase == "verify" else "KERNEL"
            if table == "KERNEL":
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?, 3)",
                    (begin * 1000, end * 1000, correlation),
                )
            elif graph:
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 0, ?, 7)",
                    (begin * 1000, end * 1000, correlation),
                )
            if runtime:
                name = 2 if table == "GRAPH_TRACE" else 1
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                    ((begin + 1) * 1000, (begin + 5) * 1000, correlation, name),
                )
        for begin, end, text, identity in rows:
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)",
                (begin * 1000, end * 1000, text, identity),
            )
    database.commit()
    database.close()


def test_graph_replays_of_nsight_count_as_device_time(tmp_path):
    nsys(tmp_path / "report.sqlite")

    time = analyze([str(tmp_path / "report.sqlite")]).as_json()["time"]

    assert time["rounds"] == 4
    assert (time["draft_ms"], time["verify_ms"], time["sample_ms"]) == (1.0, 6.0, 0.5)
    assert (time["idle_ms"], time["trace_coverage"]) == (pytest.approx(2.5), 1.0)


def test_a_report_without_its_graph_replays_is_not_taken_for_an_idle_gpu(tmp_path):
    nsys(tmp_path / "report.sqlite", graph=False)

    result = analyze([str(tmp_path / "report.sqlite")]).as_json()

    assert result["time"]["trace_coverage"] == 0.0
    assert result["time"]["idle_share"] is None
    assert "TRACE_UNDER_RECORDED" in {f["code"] for f in result["findings"]}


def test_without_host_launches_there_is_no_coverage_and_no_idle(tmp_path):
    nsys(tmp_path / "report.sqlite", runtime=False)

    time = analyze([str(tmp_path / "report.sqlite")]).as_json()["time"]

    assert (time["trace_coverage"], time["idle_share"]) == (None, None)


def test_the_trace_table_of_nsight_gives_device_time_by_name():
    lines = ["Start (ns),Duration (ns),CorrId,Strm,Name"]
    for number in range(4):
        for key, (phase, at, length) in enumerate(PARTS):
            lines.append(
                f"{(number * ROUND_US + at) * 1000},{length * 1000},{number * 3 + key + 1},7,"
                f"{phase}_kernel"
            )

    time = times("\n".join(lines) + "\n")[0]

    assert time.parts_ms["verify"] == pytest.approx(24.0)
    assert time.parts_ms["draft"] == pytest.approx(4.0)
    assert (time.idle_share, time.trace_coverage) == (None, None)


def test_another_sqlite_file_is_refused_with_a_reason(tmp_path):
    database = sqlite3.connect(tmp_path / "x.sqlite")
    database.execute("CREATE TABLE t(a)")
    database.commit()
    database.close()

    from specscope.errors import InputError

    with pytest.raises(InputError, match="without CUDA activity"):
        analyze([str(tmp_path / "x.sqlite")])


def test_work_behind_a_step_annotation_belongs_to_its_round_and_prefill_to_none():
    events = []
    correlation = 0

    def launch(phase, start, length):
        nonlocal correlation
        correlation += 1
        events.append(event("user_annotation", f"gpu_model_runner: {phase}", start, length))
        events.append(event("cuda_runtime", "cudaLaunchKernel", start + 1, 2, correlation))
        events.append(event("kernel", "k", start, length, correlation, device=0))

    for number in range(6):
        start = number * ROUND_US
        if number == 3:
            events.append(
                event("user_annotation", "execute_context_1(900)_generation_0(0)", start, 9000)
            )
            launch("forward", start, 9000)
            continue
        events.append(event("user_annotation", "execute_context_0(0)_generation_2(8)", start, 6000))
        launch("forward", start, 6000)
        launch("sample", start + 6000, 500)
        launch("draft", start + 6500, 2500)

    time = times(json.dumps({"traceEvents": events}))[0]

    assert time.rounds == 4  # the last has no known end
    assert (time.verify_ms, time.sample_ms, time.draft_ms) == (6.0, 0.5, 2.5)
    assert time.round_ms == pytest.approx(10.0)
    assert time.idle_share == pytest.approx(0.1)


def test_the_last_cycle_of_a_trace_without_marks_has_no_known_end():
    """Three verifications are two cycles; what was launched behind them does not hide idle time."""
    events = []
    for number in range(3):
        start = number * ROUND_US
        for at, (phase, begin, length) in enumerate(PARTS):
            key = 10 * number + at + 1
            cut = number == 2 and phase == "sample"
            events.append(event("cuda_runtime", "cudaLaunchKernel", start + begin, 2, key))
            if not cut:
                name = f"{phase}_kernel"
                events.append(event("kernel", name, start + begin, length, key, device=0))

    time = times(json.dumps({"traceEvents": events}))[0]

    assert time.rounds == 2
    assert time.round_ms == pytest.approx(10.0)
    assert time.idle_share == pytest.approx(0.25)
    assert (time.draft_ms, time.verify_ms, time.sample_ms) == (1.0, 6.0, 0.5)
