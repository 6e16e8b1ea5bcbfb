"""bench/gpu.sh's checks, as far as a CPU can run them: each gives a figure beside its bar."""

import json
from pathlib import Path

import pytest

from specscope.engine.pair import bundled_prompts, load_bundled

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """The script and the place to run it in."""
    monkeypatch.syspath_prepend(str(BENCH))
    import engine_gpu
    from engine_gpu_place import Place

    pair = load_bundled()
    prompts = [pair.encode(prompt.text) for prompt in bundled_prompts()[::48]]
    return engine_gpu, Place("cpu", pair, prompts[:2], 6)


def test_every_check_runs_on_a_cpu_and_gives_a_figure_beside_its_bar(bench, tmp_path):
    script, place = bench

    checks = script.run(place, 10, tmp_path / "checks.json")

    assert [check for check in checks if check.holds is False] == []
    assert [check for check in checks if not check.budget or check.value in ("", None)] == []
    written = json.loads((tmp_path / "checks.json").read_text())["checks"]
    assert [one["name"] for one in written] == [check.name for check in checks]
    # What needs no GPU to be right is judged here too.
    judged = {check.name.partition(": ")[2] or check.name for check in checks if check.holds}
    assert {"replays under a random gate", "graphs captured after the warm-up"} <= judged


def test_a_check_that_fails_keeps_the_others(bench, monkeypatch):
    script, place = bench

    def broken(place):
        raise RuntimeError("attn_bias is not correctly aligned")

    monkeypatch.setattr(
        script, "all_checks", lambda place: [("one", lambda: broken(place)), ("two", list)]
    )

    (check,) = script.run(place, 10, None)

    assert (check.name, check.holds) == ("one", False)
    assert "attn_bias" in check.value
