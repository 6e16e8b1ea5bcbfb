"""The page about decisions names every word that the code can say, and its example runs."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

from specscope.evaluate.causes.search import CAUSES
from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.verdict.fleet import FleetAction
from specscope.evaluate.verdict.verdict import Action, Flag, Why
from specscope.evaluate.verdict.words import ACTIONS, FLAGS, FLEET, LEFT_OUT, REASONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/evaluator.md").read_text()


def words(text):
    return set(re.findall(r"`([A-Za-z_0-9]+)`", text))


def test_the_example_on_the_page_runs():
    example = doctest.DocTestParser().get_doctest(PAGE, {}, "evaluator.md", None, 0)

    result = doctest.DocTestRunner().run(example)

    assert result.attempted >= 4
    assert result.failed == 0


def test_every_cause_is_on_the_page_and_no_other():
    section = PAGE.partition("## Why it loses")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for line in rows for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])}

    assert named == {cause.code for cause in CAUSES}


def test_every_action_and_flag_is_on_a_page():
    replay = (ROOT / "docs/replay.md").read_text()

    assert {*Action, *FleetAction} <= words(PAGE)
    assert set(Flag) <= words(PAGE) | words(replay)


def test_every_code_has_its_words():
    assert set(FLAGS) == set(Flag)
    assert set(ACTIONS) == set(Action)
    assert set(LEFT_OUT) == set(LeftOut)
    assert set(FLEET) == set(FleetAction)
    assert set(REASONS) == set(Why)


def test_the_words_of_verdicts_load_the_standard_library_alone():
    program = (
        "import sys, specscope.evaluate.verdict.words\n"
        "print(*{'numpy', 'scipy'} & set(sys.modules))"
    )

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert run.stdout.split() == []
