"""Parse the arms of `gate calibrate`: draft lengths and tables."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from specscope.errors import UsageError
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.gate.console import read_table_file
from specscope.policy.arms import PolicyArm
from specscope.policy.table import Cell, GateTable
from specscope_hook.gate import CURRENT, LONGEST_NAME, MOST_ARMS

LONGEST_DRAFT = 255
_CELL = re.compile(rf"{CURRENT}\+(?P<class>[^+]+):(?P<k>\d+)")
_FILE_NAME = re.compile(r"[A-Za-z][\w.-]*")
# Names that mean something else to a hook or to a crossover by router.
_TAKEN = re.compile(r"k\d+|current|clean|schedule")


def arms_of_lengths(lengths: Sequence[int]) -> tuple[PolicyArm, ...]:
    """An arm for each draft length."""
    return tuple(PolicyArm(f"k{k}") for k in lengths)


def read_arms(words: Sequence[str]) -> tuple[PolicyArm, ...]:
    """Arms from words such as k0, 2, current, current+json:2 and table.json, in their order.

    Raises UsageError for an invalid or repeated arm, for more arms than a hook can run, and if
    target-only is missing; InputError for a file without a table.
    """
    arms = tuple(_arm(word) for word in words)
    for name, count in Counter(arm.name for arm in arms).items():
        if count > 1:
            raise UsageError(f"{count} arms are called {name!r}: an arm of a file has its name")
    if len(arms) > MOST_ARMS:
        raise UsageError(f"{len(arms)} arms; a hook runs {MOST_ARMS} at most")
    if all(arm.name != BASELINE for arm in arms) or len(arms) < 2:
        raise UsageError("name k0 (target-only) and at least one other arm to compare")
    return arms


def check_distinct(arms: Sequence[PolicyArm], in_force: GateTable) -> None:
    """Raises UsageError if two arms run the same table: their contrast would be noise."""
    for one, other in combinations(arms, 2):
        if one.runs(in_force) == other.runs(in_force):
            raise UsageError(f"arms {one.name} and {other.name} run the same table: drop one")


def arm_words(arm: PolicyArm) -> str:
    """An arm in a line: `k = 4`, or its name and its cells."""
    if not arm.has_table:
        return f"k = {arm.name[1:]}"
    if arm.table is not None:
        cells = "; ".join(map(str, arm.table.cells))
        return f"{arm.name} ({cells}{'; ' if cells else ''}otherwise k = {arm.table.default_k})"
    return arm.name if not arm.cells else f"{arm.name} (the table in force, but {arm.cells[0]})"


def _arm(word: str) -> PolicyArm:
    if re.fullmatch(r"k?\d+", word):
        return PolicyArm(f"k{_draft_length(word.removeprefix('k'), word)}")
    if word == CURRENT:
        return PolicyArm(CURRENT)
    if word.startswith(f"{CURRENT}+"):
        changed = _CELL.fullmatch(word)
        if changed is None:
            raise UsageError(f"{word!r} is no arm: a changed class is current+json:2")
        k = _draft_length(changed["k"], word)
        return PolicyArm(_bounded(word), cells=(Cell(k, changed["class"]),))
    return _of_file(Path(word))


def _of_file(path: Path) -> PolicyArm:
    if not os.path.exists(path):
        raise UsageError(
            f"{str(path)[:80]!r} is no arm: neither a draft length, current, current+CLASS:K nor "
            "a file"
        )
    name = check_file_name(path)
    table = read_table_file(path)
    # What its cells rested on is another experiment's; this one is about to judge them.
    cells = tuple(replace(cell, basis=None) for cell in table.cells)
    return PolicyArm(name, table=GateTable(cells, table.default_k))


def check_file_name(path: Path) -> str:
    """The arm name for a file's table. Raises UsageError for an invalid name."""
    name = path.stem
    if not _FILE_NAME.fullmatch(name) or _TAKEN.fullmatch(name):
        raise UsageError(
            f"{path}: its arm would be called {name!r}; a name begins with a letter, holds "
            "letters, digits, . _ - and is no arm of its own"
        )
    return _bounded(name)


def _draft_length(text: str, word: str) -> int:
    if len(text) > 3 or int(text) > LONGEST_DRAFT:
        raise UsageError(f"{word!r} is no arm: a draft length is {LONGEST_DRAFT} at most")
    return int(text)


def _bounded(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the name of arm {name[:20]}... is longer than {LONGEST_NAME} characters")
    return name
