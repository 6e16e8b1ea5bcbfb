"""Exit codes: 0 done, 1 a named error, 2 usage, 3 answered but undecided, or what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specscope import cli
from specscope.arguments import PERIOD
from specscope.errors import ExitCode, InputError, UsageError
from specscope.policy.table import Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_hook.errors import SettingsError

CASES = Path(__file__).parent / "data" / "readers" / "cases"


def run(capsys, *words) -> int:
    """Exit code of a command in this process."""
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    capsys.readouterr()
    return code


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    where = f"chdb://{tmp_path_factory.mktemp('store')}/store"
    with Store.open(where) as store:
        migrate(store)
    return where


def test_the_codes_are_those_that_the_docs_name():
    assert [(code.name, code.value) for code in ExitCode] == [
        ("DONE", 0),
        ("FAILED", 1),
        ("USAGE", 2),
        ("UNSETTLED", 3),
    ]
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    assert all(f"| {int(code)} |" in page for code in ExitCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("x"), 1), (UsageError("x"), 2), (SettingsError("x"), 2), (OSError(2, "x"), 1)],
)
def test_an_error_ends_with_the_code_of_its_kind(capsys, monkeypatch, error, code):
    def raises(args):
        raise error

    monkeypatch.setattr("specscope.analyze.cli.run", raises)

    assert run(capsys, "analyze", "x") == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("analyze", "--codes"), 0),
        (("analyze", CASES / "vllm-v1-log-format-drift"), 3),
        (("analyze", "/nowhere"), 1),
        (("analyze",), 2),
        (("analyze", "--nonsense"), 2),
        (("replay", "/nowhere"), 2),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, tuple) else "",
)
def test_a_command_without_a_store(capsys, words, code):
    assert run(capsys, *words) == code


def test_a_case_that_is_settled_ends_with_0_and_one_that_is_not_with_3(capsys):
    codes = {
        path.name: run(capsys, "analyze", path) for path in sorted(CASES.iterdir()) if path.is_dir()
    }

    assert set(codes.values()) == {ExitCode.DONE, ExitCode.UNSETTLED}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("gate", "show"), 0),
        (("gate", "recommend", "--since", PERIOD), 3),
        (("gate", "export", "vllm"), 2),  # nobody knows which draft length the engine runs
        (("gate", "export", "vllm", "--default-k", "4"), 3),
        (("gate", "history"), 0),
        (("gate", "watch"), 2),
        (("gate", "rollback"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_empty_store_decides_nothing(capsys, empty_store, words, code):
    assert run(capsys, *words, "--store", empty_store) == code


def test_a_report_without_evidence_is_written_and_says_that_nothing_is_decided(
    capsys, empty_store, tmp_path
):
    code = run(capsys, "report", "--store", empty_store, "--out", tmp_path)

    assert code == ExitCode.UNSETTLED
    assert (tmp_path / "report.html").exists()


def test_a_table_that_differs_from_the_one_in_force_is_a_difference(capsys, empty_store, tmp_path):
    table = tmp_path / "table.json"
    wanted = GateTable((Cell(3, class_="sql"),), 1)
    table.write_text(json.dumps({"schema": "specscope.gate/1", **wanted.as_json()}))
    words = (table, "--store", empty_store, "--default-k", 1)

    assert run(capsys, "gate", "diff", *words) == ExitCode.UNSETTLED
