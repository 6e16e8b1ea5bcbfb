"""Allow only SQL that is one SELECT over our tables.

`readonly = 1` is not enough: under it the engine still reads files and addresses, writes `INTO
OUTFILE`, and kills queries. So the text is checked twice. The first check reads its tokens, to find
a hidden second statement. The second reads the engine's own parse tree from EXPLAIN AST, which runs
nothing and has the bound parameters filled in. Every node, function, table function and table of
the tree must be on a list of allowed ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """A statement without the clauses that the endpoint handles itself.

    format: its format, if any. settings: its settings, all of them allowed. browses: it only lists
    tables or columns, and needs no check of the parse tree
    """

    sql: str
    format: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    browses: bool = False


@dataclass(slots=True)
class _Node:
    depth: int
    name: str
    value: str
    children: list[_Node] = field(default_factory=list)


def statement(sql: str, *, database: str = "") -> Statement:
    """Split a text into statement, format and settings, and refuse ambiguous text.

    Raises QueryRefused for anything but one SELECT, SHOW, DESCRIBE or EXISTS in plain characters.
    It refuses a second statement, an unclosed quote or comment, control characters, heredocs,
    typographic quotes, and a setting or format that is not allowed.
    """
    tokens = list(_tokens(sql.rstrip().removesuffix(";")))
    sql, tokens, settings = _without_settings(sql, tokens)
    format_ = None
    if len(tokens) > 2 and tokens[-2].text.upper() == "FORMAT" and tokens[-1].kind == "word":
        format_ = tokens[-1].text
        if format_ not in allowed("formats"):
            raise QueryRefused(f"this endpoint does not write format {format_}")
        sql, tokens = sql[: tokens[-2].start], tokens[:-2]
        sql, tokens, before = _without_settings(sql, tokens)
        settings = before | settings
    first = tokens[0].text.upper() if tokens else ""
    if first in ("SHOW", "DESCRIBE", "DESC", "EXISTS"):
        _check_browsing(tokens, database)
        return Statement(sql, format_, settings, browses=True)
    if first not in ("SELECT", "WITH", "FROM", "("):
        raise QueryRefused("only SELECT, SHOW, DESCRIBE and EXISTS run here")
    return Statement(sql.rstrip().removesuffix(";"), format_, settings)


def _without_settings(sql: str, tokens: list[_Token]) -> tuple[str, list[_Token], dict[str, str]]:
    """Cut a trailing `SETTINGS name = value, …` off the text."""
    places = [at for at, token in enumerate(tokens) if token.text.upper() == "SETTINGS"]
    if not places or tokens[places[-1]].kind != "word":
        return sql, tokens, {}
    start, settings = places[-1], {}
    rest = tokens[start + 1 :]
    if not rest:
        return sql, tokens, {}
    for at in range(0, len(rest), 4):
        shape = [token.kind for token in rest[at : at + 3]]
        ends = rest[at + 3].text if at + 3 < len(rest) else ","
        if shape[:2] != ["word", "mark"] or shape[2:] not in (["number"], ["text"], ["word"]):
            return sql, tokens, {}  # then the parse tree has it, and is refused for it
        name, equals, value = (token.text for token in rest[at : at + 3])
        if equals != "=" or ends != ",":
            return sql, tokens, {}
        if name not in allowed("settings") | allowed("limits"):
            raise QueryRefused(f"setting {name} cannot be changed here")
        settings[name] = value.strip("'")
    return sql[: tokens[start].start], tokens[:start], settings


_LIKE = r"(?: (?:NOT )?I?LIKE TEXT)?(?: LIMIT NUMBER)?"
_TABLE = r"(?:(?P<database>:\w+) \. )?(?P<table>:\w+)"
# As `_check_browsing` writes them: words in capitals, names behind a colon.
_BROWSING = tuple(
    re.compile(shape, re.ASCII)
    for shape in (
        rf"SHOW DATABASES{_LIKE}",
        rf"SHOW(?: FULL)? TABLES(?: (?:FROM|IN) (?P<database>:\w+))?{_LIKE}",
        rf"SHOW(?: EXTENDED)?(?: FULL)? (?:COLUMNS|FIELDS) (?:FROM|IN) {_TABLE}"
        rf"(?: (?:FROM|IN) (?P<other>:\w+))?{_LIKE}",
        rf"(?:SHOW CREATE|DESCRIBE|DESC|EXISTS)(?: TABLE)? {_TABLE}",
    )
)


def _check_browsing(tokens: list[_Token], database: str) -> None:
    """Refuse a statement about tables with another form, or about another database."""
    words: list[str] = []
    for kind, text, _ in tokens:
        after_dot = words[-1:] == ["."]
        if kind == "word" and text.upper() in allowed("browsing") and not after_dot:
            words.append(text.upper())
        elif kind in ("word", "name"):
            words.append(":" + text.strip('"`'))
        else:
            words.append({"text": "TEXT", "number": "NUMBER"}.get(kind, text))
    shape = " ".join(words)
    found = next(filter(None, (known.fullmatch(shape) for known in _BROWSING)), None)
    if found is None:
        raise QueryRefused("of SHOW statements, only SHOW DATABASES, TABLES and COLUMNS run here")
    names = {key: name[1:] for key, name in found.groupdict().items() if name}
    for key in ("database", "other"):
        name = names.get(key, database)
        listed = name == "system" and names.get("table") in allowed("system tables")
        if name != database and not listed:
            raise QueryRefused(f"there is no database {name} here")


# A name of a subquery stands for all of it, and `*` for all columns: each level multiplies. The
# engine plans without a limit of time, and could for hours.
MOST_TABLES, MOST_ASTERISKS = 20, 12
# A plan of n conditions takes n² steps. The largest query of ours has 121 functions.
MOST_FUNCTIONS = 1000
MOST_LEVELS = 100  # of an aggregate, as in quantiles(0.1, 0.2, …): each is a look at all values


def check(tree: str, *, database: str, databases: frozenset[str]) -> None:
    """Refuse a parse tree of EXPLAIN AST that does more than read our tables.

    databases: names of all databases, in lower case. A qualified name outside `database` must be an
    allowed system table. Raises QueryRefused, which names the first part that is not allowed.
    """
    root = _tree(tree)
    if root.name != "SelectWithUnionQuery":
        raise QueryRefused("only a SELECT runs here")
    if [node.name for node in root.children] != ["ExpressionList"]:
        raise QueryRefused("a SELECT may not write a file, change settings or name a format here")
    foreign = databases - {database.lower()}
    waiting, seen = [(root, root)], Counter[str]()
    while waiting:
        node, parent = waiting.pop()
        seen[node.name] += 1
        if seen["TableIdentifier"] > MOST_TABLES or seen["Asterisk"] > MOST_ASTERISKS:
            raise QueryRefused(f"at most {MOST_TABLES} tables and {MOST_ASTERISKS} `*` in a query")
        if seen["Function"] > MOST_FUNCTIONS:
            raise QueryRefused(f"at most {MOST_FUNCTIONS} functions and operators in a query")
        waiting += [(child, node) for child in reversed(node.children)]
        if node.name not in allowed("nodes"):
            raise QueryRefused(f"{node.name} is not allowed here")
        if node.name == "Function" and parent.name == "TableExpression":
            _check_table_function(node)
        elif node.name == "Function":
            _check_function(node)
        elif node.name in ("TableIdentifier", "Identifier"):
            _check_name(node.value, database, foreign, is_table=node.name == "TableIdentifier")
        elif node.name in ("Literal", "DataType") and STATE in node.value.lower():
            raise QueryRefused("an aggregate state cannot be created from text")
        elif node.name == "DataType":
            _check_type(node.value)


STATE = "aggregatefunction"
"""Part of the name of the types that are read from memory images in text."""

_OPEN_TYPES = re.compile(r"\b(json|object|dynamic|variant)\b", re.ASCII | re.IGNORECASE)


def _check_type(name: str) -> None:
    """Refuse types that create one column for each key of a text."""
    if _OPEN_TYPES.search(name):
        raise QueryRefused(f"values of type {name.strip(chr(39))[:40]} cannot be made here")


def _check_function(node: _Node) -> None:
    base = node.value
    while base.lower() not in _functions():
        shorter = COMBINATORS.sub("", base)
        if shorter == base:
            raise QueryRefused(f"function {node.value} is not allowed here")
        base = shorter
    arguments = node.children[0].children if node.children else []
    if node.value.lower() in allowed("typed functions") and (
        not arguments or arguments[-1].name != "Literal"
    ):
        raise QueryRefused(f"the type that {node.value} names must be a text")
    if node.value.lower() in allowed("typed functions"):
        _check_type(arguments[-1].value)
    if any(len(levels.children) > MOST_LEVELS for levels in node.children[1:]):
        raise QueryRefused(f"{node.value} takes at most {MOST_LEVELS} levels here")
    if node.value.lower() in allowed("pattern functions"):
        _check_repeats(node.value, _short_text(node.value, "pattern", arguments))
    if node.value.lower() in allowed("needle functions"):
        _short_text(node.value, "needle", arguments)


MOST_REPEATS = 100  # of a part of a pattern; each is a state that every character may go through
MOST_PATTERN = 300  # characters


def _short_text(function: str, what: str, arguments: Sequence[_Node]) -> str:
    """The search text of a function, which must be a short constant. A long one costs time at each
    position of a value, and the engine cannot stop within a block of values."""
    place = 0 if function.lower().startswith("splitby") else 1
    argument = arguments[place] if len(arguments) > place else None
    if argument is None or argument.name != "Literal":
        raise QueryRefused(f"the {what} of {function} must be a text")
    if len(argument.value) > MOST_PATTERN:
        raise QueryRefused(f"the {what} of {function} has more than {MOST_PATTERN} characters")
    return argument.value


def _check_repeats(function: str, pattern: str) -> None:
    """Refuse a pattern with so many states that one block of values takes minutes."""
    repeats = math.prod(
        max(int(digits), 1)
        for counted in re.findall(r"\{([0-9, ]+)\}", pattern)
        for digits in re.findall(r"[0-9]+", counted)[-1:]
    )
    if repeats > MOST_REPEATS or pattern.count("_") > MOST_REPEATS:
        raise QueryRefused(
            f"the pattern of {function} repeats a part more than {MOST_REPEATS} times"
        )


def _check_table_function(node: _Node) -> None:
    name = node.value.lower()
    if name not in allowed("table functions"):
        raise QueryRefused(f"table function {node.value} is not allowed here")
    # The first argument of `values` may name types, and be computed.
    for argument in node.children[0].children if name.endswith("values") else ():
        if argument.name == "Function" and argument.value != "tuple":
            raise QueryRefused(f"{node.value} accepts only rows of constants")
        if argument.name == "Literal":
            _check_type(argument.value)


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
    """Read one of the lists in allowed.txt."""
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


MOST_TOKENS = 20_000  # as many as the engine takes elements of a parse tree here


def _tokens(sql: str) -> Iterator[_Token]:
    at = count = 0
    while at < len(sql):
        count += 1
        if count > MOST_TOKENS:
            raise QueryRefused(f"a statement of more than {MOST_TOKENS} words and marks")
        found = _TOKEN.match(sql, at)
        if found is None:
            raise QueryRefused(f"{sql[at]!r} at character {at + 1} is not allowed")
        kind, text = str(found.lastgroup), found.group()
        if kind == "name" and (not text.isprintable() or "\\" in text):
            raise QueryRefused("a quoted name has invisible characters")
        if kind == "word" and text.upper() == "PREWHERE":
            raise QueryRefused("PREWHERE is evaluated before a reader's filter: write WHERE")
        # Before EXPLAIN, since the types of bound parameters are read there already.
        if kind in ("name", "word") and STATE in text.lower():
            raise QueryRefused("an aggregate state cannot be created from text")
        if kind not in ("space", "comment"):
            yield _Token(kind, text, at)
        at = found.end()


def _tree(text: str) -> _Node:
    """The parse tree of EXPLAIN AST: one node per line, indented by depth."""
    path: list[_Node] = []
    for line in filter(None, text.split("\n")):
        found = _LINE.fullmatch(line)
        if found is None or len(found["depth"]) > len(path) or (path and not found["depth"]):
            raise QueryRefused("the statement cannot be parsed")
        depth = len(found["depth"])
        node = _Node(depth, found["node"], _SUFFIX.sub("", found["rest"] or "", count=1))
        del path[depth:]
        if path:
            path[-1].children.append(node)
        path.append(node)
    if not path:
        raise QueryRefused("the statement cannot be parsed")
    return path[0]


Explain = Callable[[str], str]


def guarded(sql: str, explain: Explain, *, database: str, databases: frozenset[str]) -> Statement:
    """Check a statement and return it. `explain` returns the parse tree of a text.

    Raises QueryRefused for a refused statement, and the exceptions of `explain` for invalid SQL.
    """
    parsed = statement(sql, database=database)
    if not parsed.browses:
        check(explain(parsed.sql), database=database, databases=databases)
    return parsed
