"""The page about decisions names every word that the code can say, and its example runs."""

import ast
import doctest
import re
from pathlib import Path

import specscope.evaluate as package
from specscope.evaluate.causes.search import CAUSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/evaluator.md").read_text()
SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))


def words(text):
    return set(re.findall(r"`([A-Za-z_0-9]+)`", text))


def calls(name):
    """First arguments of the calls of a name, where they are strings."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def test_the_example_on_the_page_runs():
    example = doctest.DocTestParser().get_doctest(PAGE, {}, "evaluator.md", None, 0)

    result = doctest.DocTestRunner().run(example)

    assert result.attempted >= 5
    assert result.failed == 0


def test_every_cause_is_on_the_page_and_no_other():
    section = PAGE.partition("## Why it loses")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for line in rows for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])}

    assert named == {cause.code for cause in CAUSES}


def test_every_action_is_on_the_page():
    actions = set(calls("Choice")) | set(calls("FleetVerdict"))

    assert {"collect_baseline", "inconclusive"} <= actions
    assert actions | {"keep", "set_k", "disable", "no_difference", "route"} <= words(PAGE)
