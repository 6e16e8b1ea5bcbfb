"""The README is true: its commands exist and run, its links lead somewhere, its map is the tree."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specscope.cli import VERBS
from specscope.doctor.cli import NEVER_RUN

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def commands(text):
    """Lines of shell blocks, without their comments."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    whole = [block.replace("\\\n", " ") for block in blocks]
    lines = [line.partition(" #")[0].strip() for block in whole for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def specscope(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "specscope", *words], capture_output=True, text=True, **options
    )


def test_the_two_make_targets_of_the_readme_do_what_it_says():
    for target, ends_with in (("demo", "specscope demo"), ("test", "pytest")):
        plan = subprocess.run(
            ["make", "-n", "--no-print-directory", "-C", str(ROOT), target],
            capture_output=True,
            text=True,
            check=True,
        )

        assert f"make {target}" in README
        assert ends_with in plan.stdout.splitlines()[-1]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_stands_in_the_readme(verb):
    run = specscope(verb, "--help")

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"usage: specscope {verb}")
    assert f"`specscope {verb}`" in README


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_specscope_command_in_a_document_parses(document):
    for line in commands(document.read_text()):
        words = shlex.split(line)
        if words[:1] == ["specscope"]:
            run = specscope(*words[1:2], "--help")
            options = [word.partition("=")[0] for word in words if word.startswith("--")]

            assert run.returncode == 0, line
            deeper = run.stdout
            if len(words) > 2 and re.search(rf"\b{re.escape(words[2])}\b", run.stdout):
                deeper += specscope(*words[1:3], "--help").stdout
            assert all(option in deeper for option in options), line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_in_a_document_leads_to_a_file(document):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())

    missing = [link for link in links if not (document.parent / link).exists()]

    assert missing == []


def test_the_map_of_the_architecture_names_folders_that_exist():
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"^\| (`[^|]+`) \|", text[text.index("## Map") :], re.MULTILINE)

    folders = [name.strip("` ") for cell in named for name in cell.split(",")]

    assert len(folders) > 8
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []


def test_the_doctor_names_what_has_not_been_run_as_the_readme_does():
    section = README.partition("## What has not been run")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]

    assert dict(rows) == NEVER_RUN
    assert f"{len(NEVER_RUN)} parts were never run" in specscope("doctor").stdout
    told = json.loads(specscope("doctor", "--json").stdout)
    never = [check["detail"] for check in told if check["state"] == "never run"]
    assert [one.partition("; run instead: ")[0] for one in never] == list(NEVER_RUN)
