"""The Dockerfile's parts exist, and its wheel builds from exactly what it copies."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from chart_rendering import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def instructions():
    """(word, rest) of each, continuation lines joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def copied(instructions):
    """What the first stage copies from the repository."""
    sources = []
    for word, rest in instructions:
        if word == "COPY" and not rest.startswith("--from"):
            sources += rest.split()[:-1]
    return sources


@pytest.fixture(scope="module")
def wheels(copied, tmp_path_factory):
    pytest.importorskip("hatchling", reason="builds the wheels, as pip does in the image")
    source = tmp_path_factory.mktemp("source")
    for name in copied:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, source / name)
    return built(source), built(source / "collectors")


def built(directory):
    """The wheel of the project in a directory, built as pip does."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory / "made")],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    [wheel] = (directory / "made").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(wheels):
    """Everything but the engines' own packages."""
    return wheels[0]


@pytest.fixture(scope="module")
def hook_wheel(wheels):
    """The hook alone."""
    return wheels[1]


@pytest.fixture(scope="module")
def hook_directory(hook_wheel, tmp_path_factory):
    """As the Dockerfile makes it: the hook's wheel unpacked."""
    target = tmp_path_factory.mktemp("hook")
    with zipfile.ZipFile(hook_wheel) as archive:
        archive.extractall(target)
    return target


def test_stages_are_defined_before_they_are_used(instructions):
    defined = set()

    for word, rest in instructions:
        if word == "FROM":
            base, _, name = rest.split()
            assert base in defined or base.startswith("python:"), base
            defined.add(name)
        elif word == "COPY" and (stage := re.match(r"--from=(\S+)", rest)):
            assert stage[1] in defined


def test_what_is_copied_exists_and_is_not_ignored(copied):
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    for name in copied:
        path = name.removeprefix("./")
        ignored = False
        for pattern in patterns:
            if pattern == "**" or fnmatch.fnmatch(path, pattern.lstrip("!")):
                ignored = not pattern.startswith("!")
        assert (ROOT / path).exists()
        assert not ignored, path


def test_extras_and_programs_are_those_of_the_project(instructions, project):
    text = " ".join(rest for _, rest in instructions)
    extras = {
        extra for group in re.findall(r"\.whl\)\[([\w,-]+)\]", text) for extra in group.split(",")
    }
    programs = re.findall(r'ENTRYPOINT \["(\w+)"\]', DOCKERFILE.read_text())

    assert extras == {"agent", "forward-passes", "server", "report", "dashboards", "engine"}
    assert extras <= set(project["optional-dependencies"])
    assert programs == ["specscope"]
    assert set(programs) <= set(project["scripts"])


def test_no_image_runs_as_root(instructions):
    users = [rest for word, rest in instructions if word == "USER"]
    stages = {rest.split()[2]: rest.split()[0] for word, rest in instructions if word == "FROM"}

    assert users == ["10001:10001"]
    assert [stages[name] for name in ("agent", "service", "engine")] == ["runtime"] * 3


def test_the_wheel_builds_from_what_is_copied_and_holds_all_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    packages = {name for name in tops if not name.endswith(".dist-info")}
    assert packages == {"specscope", "specscope_hook", "specscope_agent", "specscope_dashboards"}


def test_the_hooks_wheel_is_the_hook_alone_of_the_same_version(wheel, hook_wheel):
    with zipfile.ZipFile(hook_wheel) as archive:
        names = archive.namelist()
        [metadata] = (name for name in names if name.endswith("METADATA"))
        needs = [line for line in archive.read(metadata).decode().splitlines() if "Dist:" in line]
        hook = {n: archive.read(n) for n in names if n.endswith(".py")}
    with zipfile.ZipFile(wheel) as archive:
        whole = {n: archive.read(n) for n in archive.namelist() if n in hook}

    assert {name.split("/")[0] for name in hook} == {"specscope_hook"}
    assert needs == []
    assert hook == whole
    assert hook_wheel.name == wheel.name.replace("specscope-", "specscope_hook-")
    assert hook_wheel.stat().st_size < 300_000


def test_both_distributions_name_the_same_plug_ins(project):
    hook = tomllib.loads((ROOT / "collectors" / "pyproject.toml").read_text())["project"]

    assert hook["entry-points"] == project["entry-points"]
    assert hook["requires-python"] == project["requires-python"]


def test_the_hook_works_from_a_directory_on_the_path_alone(hook_directory):
    program = (
        "from importlib.metadata import entry_points;"
        "import specscope_hook.recorder, specscope_hook.ring, sys;"
        "found = entry_points(group='vllm.general_plugins', name='specscope');"
        "assert [e.value for e in found] == ['specscope_hook.adapters.vllm:register'], found;"
        "assert not any('site-packages' in p for p in sys.path);"
        "print(specscope_hook.__file__)"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(hook_directory)}

    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(hook_directory))


def test_the_hook_fits_into_the_volume_that_carries_it(hook_directory):
    size = sum(path.stat().st_size for path in hook_directory.rglob("*") if path.is_file())

    assert size < 64 << 20
