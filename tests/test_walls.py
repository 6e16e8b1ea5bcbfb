"""The walls of the house: who may import whom, and what the serving image must never see."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "specscope": ROOT / "specscope",
    "specscope_hook": ROOT / "collectors/specscope_hook",
    "specscope_agent": ROOT / "collectors/specscope_agent",
    "specscope_dashboards": ROOT / "dashboards/specscope_dashboards",
}
MAY_IMPORT = {
    "specscope_hook": {"specscope_hook"},
    "specscope_agent": {"specscope_hook", "specscope_agent"},
    "specscope": {"specscope_hook", "specscope_agent", "specscope"},
    "specscope_dashboards": {
        "specscope_hook",
        "specscope_agent",
        "specscope",
        "specscope_dashboards",
    },
}
PRINT_FOREIGN = (
    "names = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
    "print(*sorted(name for name in names if not name.startswith('_')))\n"
)
LEAVES = ["specscope/evaluate", "specscope/engine"]


def modules(folder):
    return [p for p in sorted(folder.rglob("*.py")) if not p.stem.endswith(("_pb2", "_pb2_grpc"))]


def imported(path):
    """Absolute names that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def ours(names):
    return {name for name in names if name.partition(".")[0] in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way_only(package):
    allowed = MAY_IMPORT[package]

    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(PACKAGES[package])
        for name in ours(imported(path))
        if name.partition(".")[0] not in allowed
    }

    assert wrong == set()


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_imports_nothing_of_ours_but_itself(leaf):
    own = leaf.replace("/", ".")

    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(ROOT / leaf)
        for name in ours(imported(path))
        if not (name == own or name.startswith(own + "."))
    }

    assert wrong == set()


def test_evaluation_does_no_input_or_output():
    banned = {"os", "pathlib", "io", "socket", "subprocess", "pyarrow", "clickhouse_connect"}

    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(ROOT / "specscope/evaluate")
        for name in imported(path)
        if name.partition(".")[0] in banned
    }

    assert wrong == set()


def test_the_hook_loads_the_standard_library_alone():
    hook = PACKAGES["specscope_hook"]
    names = [
        ".".join(path.relative_to(hook.parent).with_suffix("").parts)
        for path in modules(hook)
        if path.stem != "__init__"
    ]
    program = f"import sys\nfor name in {names!r}: __import__(name)\n" + PRINT_FOREIGN

    # -S keeps site-packages out, so an import of anything else fails as it would in a bare image.
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(ROOT / "collectors")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout.split() == ["specscope_hook"]


def test_importing_the_command_line_loads_no_optional_package():
    program = "import sys, specscope.cli, specscope.doctor.cli\n" + PRINT_FOREIGN

    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'collectors'}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(run.stdout.split()) <= {"specscope", "specscope_hook"}


def test_rooms_that_show_or_decide_hold_no_sql_of_their_own():
    rooms = ("report", "evaluate", "gate", "demo", "analyze")
    files = [path for room in rooms for path in modules(ROOT / "specscope" / room)]

    wrong = [
        str(path.relative_to(ROOT))
        for path in files + modules(PACKAGES["specscope_dashboards"])
        if "SELECT " in path.read_text()
    ]

    assert wrong == []


def test_few_modules_stand_outside_a_folder():
    loose = {path.stem for path in (ROOT / "specscope").glob("*.py")} - {"__init__"}

    assert len(loose) <= 8, sorted(loose)


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts): imported(path)
        for root in PACKAGES.values()
        for path in modules(root)
    }
    sorter = TopologicalSorter({name: names & graph.keys() for name, names in graph.items()})

    sorter.prepare()  # raises CycleError, which names the circle


def test_a_class_name_stands_for_one_thing():
    """Outside `engine` and `readers`, which speak of serving engines and of files."""
    apart = ("engine", "readers")
    defined: dict[str, list[str]] = {}
    for path in modules(PACKAGES["specscope"]):
        if path.relative_to(PACKAGES["specscope"]).parts[0] in apart:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(str(path.relative_to(ROOT)))

    assert {name: files for name, files in defined.items() if len(files) > 1} == {}


def test_no_file_of_the_evaluator_or_the_gate_is_long():
    rooms = ("evaluate", "evidence", "gate", "report", "policy", "replay")
    files = [path for room in rooms for path in modules(ROOT / "specscope" / room)]

    long = {str(path.relative_to(ROOT)) for path in files if path.read_text().count("\n") > 400}

    assert long == set()
