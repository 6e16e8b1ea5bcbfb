"""Which SQL may run: one SELECT over our tables, and nothing that reaches anything else.

`readonly = 1` is not enough: under it the engine still reads files and addresses, writes
`INTO OUTFILE`, and kills queries. So the text is looked at twice. First as tokens, for what
would hide a second statement; then as the engine's own parse tree, which EXPLAIN AST gives
without running anything, with bound parameters filled in. The tree must be made of nodes,
functions, table functions and tables that are on a list; what is on none is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from specscope.errors import QueryRefused

COMBINATORS = re.compile(
    r"(If|Array|Map|ForEach|Distinct|OrDefault|OrNull|Resample|ArgMin|ArgMax)$"
)
"""Endings of an aggregate; not State and Merge, which read memory images from text."""

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:[^'\\]|\\.|'')*')
    | (?P<name>"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9][A-Za-z0-9_.]*)
    | (?P<mark>(?!/\*)[-+*/%=<>!,.()\[\]{}:?|&^~@])
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = re.compile(r"\w+(\.\w+)?", re.ASCII)
_LINE = re.compile(r"(?P<depth> *)(?P<node>[A-Za-z:]+)(?: (?P<rest>.*))?", re.DOTALL)
_SUFFIX = re.compile(r"(?: \(alias (?P<alias>.*)\))?(?: \(children \d+\))?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT without its FORMAT clause, and the format that it asks for, if any."""

    sql: str
    format: str | None


class _Node(NamedTuple):
    depth: int
    name: str
    value: str


def statement(sql: str) -> Statement:
    """Take a text apart, and refuse what could be read in two ways.

    Raises QueryRefused for anything but one SELECT in plain characters: a second statement,
    a quote or comment that does not end, a control character, a heredoc, typographic quotes.
    """
    tokens = list(_tokens(sql.rstrip().removesuffix(";")))
    if not tokens or tokens[0].text.upper() not in ("SELECT", "WITH", "FROM", "("):
        raise QueryRefused("only a SELECT runs here")
    if len(tokens) > 2 and tokens[-2].text.upper() == "FORMAT" and tokens[-1].kind == "word":
        format_ = tokens[-1].text
        if format_ not in allowed("formats"):
            raise QueryRefused(f"format {format_} is not one that this endpoint writes")
        return Statement(sql[: tokens[-2].start], format_)
    return Statement(sql.rstrip().removesuffix(";"), None)


def check(tree: str, *, database: str, databases: frozenset[str]) -> None:
    """Refuse a parse tree, as EXPLAIN AST prints it, that does more than read our tables.

    databases: every name of one, in lower case; a qualified name that begins with another than
    `database` must be a listed system table.
    Raises QueryRefused, which names the first thing that is on no list.
    """
    nodes = [_node(line) for line in tree.split("\n") if line]
    if not nodes or nodes[0].name != "SelectWithUnionQuery" or nodes[0].depth:
        raise QueryRefused("only a SELECT runs here")
    if [node.name for node in nodes if node.depth == 1] != ["ExpressionList"]:
        raise QueryRefused("a SELECT may not write a file, change settings or name a format here")
    foreign = databases - {database.lower()}
    for before, node in zip([nodes[0], *nodes], nodes, strict=False):
        if node.name not in allowed("nodes"):
            raise QueryRefused(f"{node.name} is not allowed here")
        if node.name == "Function":
            in_from = before.name == "TableExpression" and node.depth == before.depth + 1
            _check_function(node.value, in_from=in_from)
        elif node.name in ("TableIdentifier", "Identifier"):
            _check_name(node.value, database, foreign, is_table=node.name == "TableIdentifier")


def _check_function(name: str, *, in_from: bool) -> None:
    if in_from:
        if name.lower() not in allowed("table functions"):
            raise QueryRefused(f"table function {name} is not allowed here")
        return
    base = name
    while base.lower() not in _functions():
        shorter = COMBINATORS.sub("", base)
        if shorter == base:
            raise QueryRefused(f"function {name} is not allowed here")
        base = shorter


def _check_name(name: str, database: str, foreign: frozenset[str], *, is_table: bool) -> None:
    # `x IN system.users` names a table by a plain identifier, so those are looked at too. A
    # path may be the name of a table, to an engine that makes tables of files.
    if (is_table and not _WORDS.fullmatch(name)) or "/" in name:
        raise QueryRefused(f"{name!r} is no name of a table here")
    first, dot, rest = name.partition(".")
    if not dot or first == database:
        return
    if first.lower() in foreign:
        if first != "system" or rest.partition(".")[0] not in allowed("system tables"):
            raise QueryRefused(f"{name} is not readable here")
    elif is_table:
        raise QueryRefused(f"there is no database {first} here")


@cache
def allowed(what: str) -> frozenset[str]:
    """One of the lists in allowed.txt."""
    text = files("specscope.service").joinpath("allowed.txt").read_text("utf-8")
    section = text.partition(f"\n[{what}]\n")[2].partition("\n[")[0]
    lines = [line for line in section.splitlines() if not line.startswith("#")]
    return frozenset(" ".join(lines).split())


@cache
def _functions() -> frozenset[str]:
    return frozenset(name.lower() for name in allowed("functions"))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def _tokens(sql: str) -> Iterator[_Token]:
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise QueryRefused(f"{sql[at]!r} at character {at + 1} may not stand there")
        kind, text = str(found.lastgroup), found.group()
        if kind == "name" and not text.isprintable():
            raise QueryRefused("a quoted name has characters that cannot be seen")
        if kind not in ("space", "comment"):
            yield _Token(kind, text, at)
        at = found.end()


def _node(line: str) -> _Node:
    found = _LINE.fullmatch(line)
    if found is None:
        raise QueryRefused("the statement cannot be understood here")
    rest = found["rest"] or ""
    return _Node(len(found["depth"]), found["node"], _SUFFIX.sub("", rest, count=1))


Explain = Callable[[str], str]


def guarded(sql: str, explain: Explain, *, database: str, databases: frozenset[str]) -> Statement:
    """The statement, if it may run. `explain` returns the parse tree of a text.

    Raises QueryRefused if it may not, and whatever `explain` raises for a text that is no SQL.
    """
    parsed = statement(sql)
    check(explain(parsed.sql), database=database, databases=databases)
    return parsed
