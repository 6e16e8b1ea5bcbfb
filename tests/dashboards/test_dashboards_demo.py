"""Every panel on the store that a demonstration leaves behind: real rounds of a real engine."""

from __future__ import annotations

import io
import time

import pytest
from dashboard_screen import Screen
from rich.console import Console

from specscope.demo import run as running
from specscope.demo.plan import Size
from specscope.demo.progress import Progress
from specscope.store.connection import Store
from specscope_dashboards.rendering import rendered

ONE_REPLICATE = Size(arms=(0, 2, 4, 8), replicates=1, seconds=1.0)
NEEDS_A_DEVICE = {"pays: Memory busy, as the device says"}
NEEDS_A_LOSS = {
    "pays: Records lost",
    "pipeline: Records lost",
    "pipeline: Records lost, by replica",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        # What a killed one leaves in memory is looked at by a test that may run beside this one.
        patch.setattr(running, "sweep", list)
        progress = Progress(Console(file=io.StringIO()), ONE_REPLICATE)
        running.run(folder, ONE_REPLICATE, progress, seed=7)
    with Store.open(f"chdb://{folder / 'store'}") as store:
        yield Screen(store, time.time_ns())


@pytest.mark.slow
def test_every_panel_shows_what_the_demonstration_measured(demo):
    shown = {
        f"{name}: {panel['title']}": demo.show(panel["targets"][0]["rawSql"])
        for name, dashboard in rendered().items()
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }

    assert {title for title, rows in shown.items() if not rows} <= NEEDS_A_DEVICE | NEEDS_A_LOSS
    [account] = shown["pipeline: Where every record went"]
    assert account["unaccounted"] == 0
    assert account["recorded"] > 100
    arms = {row["arm"] for row in shown["pays: Throughput of each arm"]}
    assert arms == {"k0", "k2", "k4", "k8"}
    for row in shown["pays: Acceptance by position"]:
        assert 0 <= row["survival"] <= 1
    for row in shown["pays: Where a round's time goes"]:
        assert row["verify"] > 0
