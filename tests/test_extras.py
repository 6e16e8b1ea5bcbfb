"""Each command runs with the packages of the extra that its documentation names, and no others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest

from specscope.cli import VERBS
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.settings import HookSettings

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OURS = {"specscope", "specscope_hook", "specscope_agent", "specscope_dashboards"}
CLOSED = """
import sys
blocked = set({blocked!r})
class Closed:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Closed())
from specscope.cli import main
sys.exit(main({words!r}))
"""


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements):
    """Distributions that requirements bring, with all that these need in turn."""
    seen, queue = set(), list(requirements)
    while queue:
        requirement = queue.pop()
        match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
        name, extras = normal(match[1]), (match[2] or "").split(",")
        if name in seen:
            continue
        try:
            wants = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        seen.add(name)
        for want in wants:
            head, _, marker = want.partition(";")
            if "extra" not in marker or any(
                f"'{e}'" in marker or f'"{e}"' in marker for e in extras if e
            ):
                queue.append(head.strip())
    return seen


def requirements_of(extra):
    if extra == "all":
        return [each for requirements in EXTRAS.values() for each in requirements]
    return EXTRAS[extra] if extra else []


def outside(extra):
    """Top-level modules that an installation with one extra lacks."""
    has = needed(requirements_of(extra))
    return sorted(
        module
        for module, names in packages_distributions().items()
        if module not in OURS and not any(normal(name) in has for name in names)
    )


def run(extra, *words):
    program = CLOSED.format(blocked=outside(extra), words=list(words))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_loads_in_its_extra(verb):
    done = run(VERBS[verb].extra, verb, "--help")

    assert done.returncode == 0, done.stderr


def test_top_shows_a_ring_in_the_sidecars_own_extra(tmp_path):
    settings = HookSettings(tmp_path, "r0", 1 << 20)
    boot = new_boot(settings, engine="vllm", engine_version="1", target="t", method="none", k_max=0)
    attach(settings, boot)

    done = run("agent", "top", str(tmp_path), "--once", "--json", "--seconds", "1")

    assert done.returncode == 0, done.stderr
    assert "r0" in done.stdout


def test_a_gate_and_a_report_of_an_empty_store_run_in_the_extra_report(tmp_path):
    address = f"chdb://{tmp_path / 'store'}"
    program = (
        "from specscope.store.connection import Store\n"
        "from specscope.store.migrate import migrate\n"
        f"store = Store.open({address!r})\n"
        "migrate(store)\nstore.close()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

    shown = run("report", "gate", "show", "--store", address, "--json")
    reported = run("report", "report", "--store", address, "--out", str(tmp_path / "out"))

    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == {}
    assert reported.returncode in (0, 3), reported.stderr


def test_the_dashboards_are_rendered_in_their_extra(tmp_path):
    done = run("dashboards", "dashboards", "render", "--out", str(tmp_path))

    assert done.returncode == 0, done.stderr


def test_a_verb_without_its_extra_names_the_remedy_that_installs_it():
    done = run("", "report", "--since", "7d")

    assert done.returncode == 1
    assert "specscope[report]" in done.stderr
