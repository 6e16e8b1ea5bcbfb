"""Pages that are made from the code are up to date, and what the pages show is what happens."""

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MOST_BYTES = 200_000


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["cli.md", "settings.md"])
def test_a_made_page_is_what_the_code_makes(page):
    path = ROOT / "docs" / page

    assert path.read_text() == tool("reference").pages()[path], "run: make reference"


def test_the_pictures_of_the_page_take_a_plot_of_today():
    drawn = tool("pictures").framed("<svg></svg>")

    assert "--ink: #" in drawn


def test_the_arithmetic_of_the_concepts_is_right():
    page = (ROOT / "docs/concepts.md").read_text()
    examples = doctest.DocTestParser().get_doctest(page, {}, "concepts.md", None, 0)

    result = doctest.DocTestRunner().run(examples)

    assert result.attempted >= 4
    assert result.failed == 0


def test_the_readme_shows_what_analyze_prints():
    command, shown = re.search(
        r"```sh\n(python3 -m specscope analyze [^\n]+)\n```\n\n```\n(.*?)```", README, re.DOTALL
    ).groups()
    words = command.split()[1:]

    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)

    assert run.returncode == 0, run.stderr
    printed = run.stdout.splitlines()
    for line in shown.splitlines():
        facts = set(re.findall(r"[A-Z]{4,}|\d+\.\d+x|\d+", line))
        assert any(facts <= set(re.findall(r"[A-Z]{4,}|\d+\.\d+x|\d+", one)) for one in printed)


def test_pictures_are_small_and_each_is_shown_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text() for page in pages)
    pictures = [path for path in (ROOT / "docs/pictures").iterdir() if path.is_file()]

    assert len(pictures) >= 5
    assert [path.name for path in pictures if f"pictures/{path.name})" not in text] == []
    assert [path.name for path in pictures if path.stat().st_size > MOST_BYTES] == []


@pytest.mark.parametrize("words", [["analyze", "docs/examples/benchmark.csv"], ["doctor"]])
def test_a_clone_answers_before_anything_is_installed(words):
    run = subprocess.run(
        [sys.executable, "-S", "-m", "specscope", *words], capture_output=True, text=True, cwd=ROOT
    )

    assert (run.returncode, run.stderr) == (0, "")


def test_every_page_is_linked_from_another_one():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    linked = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"\]\((?!https?:)([^)#]+\.md)", page.read_text())
    }

    assert [page.name for page in pages if page not in linked | {ROOT / "README.md"}] == []
