"""Every function of the embedded engine under inputs that mean harm: which of them always end?

The engine cancels a query between two blocks of rows, so a function whose work on one block takes
minutes cannot be stopped. Each function of `system.functions` is called with each kind of argument
that it takes, as large as a reader could make it on few rows. A call whose process burns more than
CPU_S, grows above RSS_BYTES or dies is a finding, unless the guard refuses that call; the guard's
list may not have that function.

Run as a script it appends one line of JSON a function to `--out`, leaves out those that are there
already, and stops after `--minutes`: so it goes in parts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from fuzz.arguments import HUGE_LEVELS, KINDS, KNOWN, LEVELS, WORDS  # noqa: E402

CPU_S = 6.0  # of a call that is told to end after LIMIT_S on two threads
LIMIT_S = 1
WALL_S = 90.0  # for a call that waits and burns nothing
RSS_BYTES = 3 << 30  # of a call that may take 1 GiB
SLOW_S = 1.5  # of the 4 MB that most calls get; one block of 1 GiB would take minutes
ROWS = 64
MOST_TRIES = 400  # calls to find out which arguments a function takes
MOST_SHAPES = 3  # of one number of arguments are attacked

WORKER = """
import json, sys
import chdb
from specscope.service.reader import LIMITS, _set
from specscope.store.connection import SETTINGS
connection = chdb.connect(":memory:")
limits = {**SETTINGS, **LIMITS, "max_execution_time": sys.argv[1], "readonly": "1"}
_set(connection, limits)
for line in sys.stdin:
    try:
        connection.query(json.loads(line), "Null")
        error = ""
    except Exception as raised:
        error = str(raised)[:200]
    print(json.dumps(error), flush=True)
"""


class Dead(Exception):
    """The engine's process did not come back; says how."""


class Engine:
    """An engine in a process of its own, which is killed when a call does not end."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None
        self.spent = 0.0

    def ask(self, sql: str) -> str:
        """The engine's error; empty if it answered. Raises Dead."""
        process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(sql) + "\n")
        process.stdin.flush()
        before, began = _cpu_s(process.pid), time.monotonic()
        # poll and not select, which knows no descriptor above 1,023.
        answered = select.poll()
        answered.register(process.stdout, select.POLLIN)
        while not answered.poll(50):
            spent = _cpu_s(process.pid) - before
            memory = _rss(process.pid)
            if spent > CPU_S or memory > RSS_BYTES or time.monotonic() - began > WALL_S:
                self.close()
                raise Dead("memory" if memory > RSS_BYTES else "endless")
        answer = process.stdout.readline()
        if not answer:
            self.close()
            raise Dead("crash")
        self.spent = _cpu_s(process.pid) - before
        return str(json.loads(answer))

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self._limit_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ask("SELECT 1")
        return self._process


def _cpu_s(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except OSError:
        return 0


@dataclass(slots=True)
class Function:
    """One row of system.functions."""

    name: str
    aggregates: bool
    arguments: list[str]
    """What the engine's own page says of each; empty where it has none."""


@dataclass(slots=True)
class Verdict:
    """What became of a function's calls."""

    name: str
    verdict: str
    """ends; slow (a large block would take minutes); endless; memory; crash; untried (no arguments
    were found that it takes)"""
    spent: float = 0.0
    sql: str = ""
    shapes: list[list[str]] = field(default_factory=list)


def functions(names: Iterable[str] = ()) -> list[Function]:
    """All of the engine's, or the named; an alias too is a name that a reader may write."""
    import chdb

    connection: Any = chdb.connect(":memory:")
    sql = "SELECT name, is_aggregate, arguments FROM system.functions ORDER BY name"
    rows = json.loads(connection.query(sql, "JSONCompact").bytes())["data"]
    connection.close()
    wanted = {name.lower() for name in names}
    return [
        Function(name, bool(int(aggregates)), re.findall(r"^- (.*)$", arguments, re.MULTILINE))
        for name, aggregates, arguments in rows
        if not wanted or name.lower() in wanted
    ]


def _candidates(text: str) -> tuple[str, ...]:
    lower = text.lower()
    found: list[str] = []
    for word, kinds in WORDS:
        if word in lower:
            found += kinds
    return tuple(dict.fromkeys(found)) or ("number", "text", "numbers")


BRUTE = tuple(KINDS)
COMMON = (
    "text",
    "needle",
    "number",
    "numbers",
    "constant",
    "whole",
    "map",
    "same",
    "both",
    "time",
    "texts",
)


def _tries(function: Function) -> Iterator[tuple[str, ...]]:
    """Kinds of arguments that a function may take, likeliest first."""
    documented = [_candidates(text) for text in function.arguments]
    lists: list[Iterable[tuple[str, ...]]] = [KNOWN.get(function.name.lower(), [])]
    for count in range(len(documented), 0, -1):
        lists.append(itertools.islice(itertools.product(*documented[:count]), 150))
    lists += [[()], ((kind,) for kind in BRUTE), itertools.product(COMMON, repeat=2)]
    lists += [itertools.product(COMMON[:8], repeat=3)]
    return itertools.chain(*lists)


def _call(function: Function, level: str, arguments: Sequence[str]) -> str:
    return f"SELECT {function.name}{level}({', '.join(arguments)}) FROM numbers({ROWS})"


# What the engine says of a call whose arguments are of no kind that the function takes.
_NOT_TAKEN = re.compile(r"Code: (42|43|36|53|35|44|46|47|62|33|170|63|386|133|134|387)\.")


def shapes(engine: Engine, function: Function) -> list[tuple[str, tuple[str, ...]]]:
    """Parameters and kinds of arguments that a function takes, a few that differ."""
    found: list[tuple[str, tuple[str, ...]]] = []
    seen: set[tuple[str, ...]] = set()
    tried, taken = 0, Counter[int]()
    for kinds in _tries(function):
        if kinds in seen or taken[len(kinds)] >= MOST_SHAPES:
            continue
        seen.add(kinds)
        for level in LEVELS if function.aggregates else ("",):
            tried += 1
            if tried > MOST_TRIES:
                return found
            error = engine.ask(_call(function, level, [KINDS[kind].tiny for kind in kinds]))
            if not error or not _NOT_TAKEN.search(error):
                found.append((level, kinds))
                taken[len(kinds)] += 1
                if level not in HUGE_LEVELS:
                    break
    return found


def attacks(function: Function, level: str, kinds: Sequence[str]) -> Iterator[str]:
    """Calls with one kind of arguments, made large: all at once, then one at a time."""
    tiny = [KINDS[kind].tiny for kind in kinds]
    for turn in range(max((len(KINDS[kind].huge) for kind in kinds), default=1)):
        huge = [KINDS[kind].huge[turn % len(KINDS[kind].huge)] for kind in kinds]
        for large in (level, *HUGE_LEVELS.get(level, ())):
            yield _call(function, large, huge)
    for place, kind in enumerate(kinds if len(kinds) > 1 else ()):
        for huge_one in KINDS[kind].huge[:2]:
            yield _call(function, level, [*tiny[:place], huge_one, *tiny[place + 1 :]])


def rows_and_frames(function: Function, level: str, kinds: Sequence[str]) -> Iterator[str]:
    """Calls of an aggregate over very many rows, and over frames that overlap."""
    call = f"{function.name}{level}({', '.join(KINDS[kind].tiny for kind in kinds)})"
    yield f"SELECT {call} FROM numbers(3000000) GROUP BY number % 2"
    frame = "OVER (ORDER BY number ROWS BETWEEN 1000000 PRECEDING AND CURRENT ROW)"
    inner = f"SELECT {call} {frame} AS x FROM numbers(3000000)"
    yield f"SELECT count() FROM ({inner}) WHERE NOT ignore(x)"


def judge(engine: Engine, function: Function) -> Verdict:
    """Attack one function."""
    verdict = Verdict(function.name, "untried")
    try:
        found = shapes(engine, function)
    except Dead as death:
        return Verdict(function.name, str(death), sql="(with tiny arguments)")
    for level, kinds in found:
        verdict.shapes.append([level, *kinds])
        verdict.verdict = "ends"
        calls = list(attacks(function, level, kinds))
        if function.aggregates and len(verdict.shapes) == 1:
            calls += rows_and_frames(function, level, kinds)
        for sql in dict.fromkeys(calls):
            try:
                engine.ask(sql)
            except Dead as death:
                if function.name.lower() in _listed() and refused(sql):
                    continue
                return Verdict(function.name, str(death), CPU_S, sql[:300], verdict.shapes)
            if engine.spent > verdict.spent:
                verdict.spent, verdict.sql = round(engine.spent, 2), sql[:300]
    return verdict


def refused(sql: str) -> bool:
    """Whether the guard does not let a call run."""
    import chdb

    from specscope.errors import QueryRefused
    from specscope.service.guard import guarded

    connection: Any = chdb.connect(":memory:")

    def explain(text: str) -> str:
        tree: bytes = connection.query(f"EXPLAIN AST {text}", "TSVRaw").bytes()
        return tree.decode()

    try:
        guarded(sql, explain, database="default", databases=frozenset())
    except QueryRefused:
        return True
    finally:
        connection.close()
    return False


@cache
def _listed() -> frozenset[str]:
    from specscope.service.guard import allowed

    return frozenset(name.lower() for name in allowed("functions"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=19)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    known = set()
    if args.out.exists():
        known = {json.loads(line)["name"] for line in args.out.read_text().splitlines()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * args.minutes
    engine = Engine()
    with args.out.open("a") as out:
        listed = _listed()  # they come first
        for function in sorted(
            functions(args.names), key=lambda one: one.name.lower() not in listed
        ):
            if function.name in known:
                continue
            if time.monotonic() > end:
                break
            out.write(json.dumps(asdict(judge(engine, function))) + "\n")
            out.flush()
    engine.close()


if __name__ == "__main__":
    main()
