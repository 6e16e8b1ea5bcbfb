"""What is committed is what the code renders, and every panel explains itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from specscope import queries
from specscope.cli import main
from specscope_dashboards import panels
from specscope_dashboards.rendering import DASHBOARDS, plain, rendered, write
from specscope_dashboards.target import PLUGIN
from specscope_hook.settings import KNOWN

WIDTH = 24


@pytest.fixture(params=DASHBOARDS)
def dashboard(request):
    return plain(DASHBOARDS[request.param]())


def shown(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_the_committed_files_are_what_the_code_renders(tmp_path, committed):
    write(tmp_path)

    fresh = {path.name: path.read_text() for path in tmp_path.iterdir()}

    assert fresh == {path.name: path.read_text() for path in committed.glob("*.json")}


@pytest.fixture
def committed(pytestconfig):
    return pytestconfig.rootpath / "dashboards" / "rendered"


def test_rendering_twice_gives_the_same_text():
    assert json.dumps(rendered()) == json.dumps(rendered())


def test_every_panel_has_a_title_a_unit_and_says_what_a_change_means(dashboard):
    change = re.compile(
        r"\b(fall|falls|falling|rise|rises|rising|grow|grows|growing|growth|below|above|means?"
        r"|asks? for|sharp|low|near|longer|more than|other than|appears)\b",
        re.IGNORECASE,
    )
    for panel in shown(dashboard):
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert len(panel["description"]) > 80, panel["title"]
        assert change.search(panel["description"]), panel["title"]


def test_no_two_panels_say_the_same():
    texts = [panel["description"] for board in rendered().values() for panel in shown(board)]

    assert len(set(texts)) == len(texts)


def test_panels_fill_their_rows_without_overlap(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert 0 <= x < WIDTH, panel["title"]
                assert (x, y) not in taken, f"{panel['title']} over {taken[x, y]}"
                taken[x, y] = panel["title"]

    widths = {}
    for panel in shown(dashboard):
        y = panel["gridPos"]["y"]
        widths[y] = widths.get(y, 0) + panel["gridPos"]["w"]
    assert set(widths.values()) == {WIDTH}


def test_panels_are_numbered_and_dashboards_have_names_of_their_own():
    boards = rendered().values()

    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        numbers = [panel["id"] for panel in board["panels"]]
        assert numbers == list(range(1, len(numbers) + 1))


def test_every_query_reads_the_source_that_is_chosen_on_the_dashboard(dashboard):
    source = {"type": PLUGIN, "uid": "${datasource}"}

    for panel in shown(dashboard):
        assert panel["datasource"] == source
        assert [target["datasource"] for target in panel["targets"]] == [source]
    variables = {v["name"]: v for v in dashboard["templating"]["list"]}
    assert variables["datasource"]["query"] == PLUGIN
    for name in ("replica", "class"):
        if name in variables:
            assert variables[name]["datasource"] == source


def test_every_variable_in_a_query_is_one_of_the_dashboard(dashboard):
    known = {variable["name"] for variable in dashboard["templating"]["list"]}

    for panel in shown(dashboard):
        sql = panel["targets"][0]["rawSql"]
        used = set(re.findall(r"\$\{(\w+)", sql)) | set(re.findall(r"\$(?!_)(\w+)", sql))
        assert used <= known, panel["title"]


def test_a_unit_is_the_one_that_the_querys_docstring_ends_with():
    assert panels.unit(queries.tokens_per_round) == "suffix: tokens"
    assert panels.unit(queries.acceptance_rate) == "percentunit"
    assert panels.unit(queries.bandwidth) == "Bps"


def test_a_query_that_does_not_say_its_unit_is_refused():
    def unsaid(where: str) -> str:
        """No unit here."""
        return where

    with pytest.raises(ValueError, match="unsaid does not say its unit"):
        panels.unit(unsaid)


def test_the_command_writes_a_file_for_each_dashboard(tmp_path, capsys):
    code = main(["dashboards", "render", "--out", str(tmp_path / "new"), "--json"])

    assert code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == [str(tmp_path / "new" / f"{name}.json") for name in DASHBOARDS]
    assert all(json.loads(Path(path).read_text())["title"] for path in printed)


def test_no_setting_of_ours_is_named_by_a_dashboard():
    text = json.dumps(rendered())

    assert not [name for name in KNOWN if name in text]
