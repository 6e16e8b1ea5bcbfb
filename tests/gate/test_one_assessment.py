"""Every screen shows one judgement: the same answer for every segment, whoever asks."""

import asyncio
import json
import time

import pyarrow as pa
import pyarrow.compute
import pytest
from gate.screens import answers, answers_of_the_panel
from gate.test_gate_commands import LOSE, WIN, put_blocks
from gate.test_gate_crossover import SWAPPED, stored
from waiting import PATIENCE_S

from specscope import queries
from specscope.cli import main
from specscope.policy.stored import next_table, read_policies, write_policy
from specscope.policy.table import Basis, Cell, GateTable
from specscope.service.app import _assess
from specscope.service.assessor import STALE_NS, Assessor
from specscope.store.connection import Store
from specscope.store.migrate import migrate


def put_in_force(store, table):
    migrate(store)
    now = time.time_ns()
    write_policy(store, next_table(read_policies(store), table, now=now), "test", now)


@pytest.mark.parametrize("default_k", [None, 0, 2, 4])
def test_report_recommend_and_plan_give_one_answer_for_each_segment(tmp_path, default_k):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN, "prose": LOSE})
    options = [] if default_k is None else ["--default-k", str(default_k)]

    report, recommend, plan = answers(where, *options)

    assert report == recommend == plan
    if default_k is None:
        assert sorted(answers_of_the_panel(where)) == sorted(report)
    actions = {label: action for label, _, _, _, action, *_ in report}
    assert actions == {"sql": "keep" if default_k == 4 else "set_k", "prose": "disable"}


def test_the_odds_of_causes_are_the_same_on_every_screen(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN, "prose": LOSE})
    found = {}
    for command in (["report", "--out", f"{tmp_path}/out"], ["gate", "recommend"]):
        assert main([*command, "--store", where, "--json"]) in (0, 3)
        segments = json.loads(capsys.readouterr().out)["segments"]
        found[command[0]] = {one["label"]: one["cause_odds"] for one in segments}
    with Store.open(where) as store:
        Assessor(store).tick()
        rows = store.rows("SELECT class, cause, body FROM assessment FINAL")

    written = {row["class"]: json.loads(row["body"])["segment"]["cause_odds"] for row in rows}
    assert found["report"] == found["gate"] == written
    assert written["sql"] == []
    assert sum(one["odds"] or 0.0 for one in written["prose"]) == pytest.approx(1.0)
    named = ", ".join(one["cause"] for one in written["prose"])
    assert {row["class"]: row["cause"] for row in rows} == {"sql": None, "prose": named}
    page = (tmp_path / "out/report.html").read_text()
    assert all(one["cause"].replace("_", " ") in page for one in written["prose"])


def test_a_length_in_force_that_wins_is_kept_by_every_screen(tmp_path):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_in_force(store, GateTable((Cell(4, "sql"),), 0))
        put_blocks(store, {"sql": WIN})

    report, recommend, plan = answers(where)

    assert report == recommend == plan
    assert answers_of_the_panel(where) == report
    ((*_, action, k, grade, confidence),) = report
    assert (action, k, grade, confidence) == ("keep", 4, "measured", "high")


@pytest.mark.parametrize("by_table", [False, True])
def test_an_allowance_reaches_every_screen_from_the_options_or_the_table(tmp_path, by_table):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        if by_table:
            basis = Basis("measured", tpot_ms=50.0)
            put_in_force(store, GateTable((Cell(4, "sql", basis=basis),), 0))
        put_blocks(store, {"sql": WIN}, tpot_ms=200.0)

    found = answers(where, *([] if by_table else ["--tpot-ms", "sql=50"]))

    assert found[0] == found[1] == found[2]
    assert [one[4] for one in found[0]] == ["route"]
    if by_table:
        assert answers_of_the_panel(where) == found[0]


@pytest.mark.parametrize("options", [[], ["--closed-loop"]])
def test_a_crossover_by_router_has_one_answer_too(tmp_path, options):
    where = stored(tmp_path, SWAPPED)

    report, recommend, plan = answers(where, *options)

    assert report == recommend == plan
    assert len(report) == 1
    if not options:
        assert answers_of_the_panel(where) == report


def test_answers_are_written_when_evidence_changes_and_once_an_hour(tmp_path):
    now = time.time_ns()
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        assessor = Assessor(store)
        assert assessor.tick(now) == 0  # nothing ran
        put_blocks(store, {"sql": WIN})
        assert assessor.tick(now) == 1
        assert assessor.tick(now + 10**9) == 0
        assert assessor.tick(now + STALE_NS) == 1
        put_blocks(store, {"sql": WIN, "prose": LOSE})
        assert assessor.tick(now + STALE_NS + 10**9) == 2
        assert [row["label"] for row in store.rows(queries.verdicts())] == ["prose", "sql"]


def test_rows_that_come_again_are_no_new_evidence_and_their_next_version_is(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        put_blocks(store, {"sql": WIN})
        before = store.rows(queries.evidence_state())
        again = store.query("SELECT * FROM block_time FINAL")
        store.command("SYSTEM STOP MERGES")
        store.insert("block_time", again, token="again")
        assert store.rows(queries.evidence_state()) == before
        version = again.schema.get_field_index("version")
        newer = pa.compute.add(again["version"], pa.scalar(1, pa.uint64()))
        store.insert("block_time", again.set_column(version, "version", newer), token="newer")
        assert store.rows(queries.evidence_state()) != before


def test_a_service_judges_as_it_starts_and_not_first_after_its_pause(tmp_path):
    async def started(store):
        task = asyncio.create_task(_assess(Assessor(store.session())))
        while not store.rows(queries.verdicts()):
            assert not task.done()
            await asyncio.sleep(0.05)
        task.cancel()

    with Store.open(f"chdb://{tmp_path}/store") as store:
        put_blocks(store, {"sql": WIN})
        asyncio.run(asyncio.wait_for(started(store), PATIENCE_S))
