"""Training text: prose and Python found on the machine, SQL and JSON from a seeded generator.

A document is held out as a whole, by the hash of its content. Generated text is more regular than
real traffic. Prompts are shipped, so they hold the project's own text only: its pages, its source
and what the generator writes."""

import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specscope.engine.errors import NoCorpus

DOCS = Path("/usr/share/doc/python3.11/html/_sources")
STDLIB = Path("/usr/lib/python3.11")
OWN = Path(__file__).parents[3]
"""The checkout that this file lies in."""
HELD_OUT_PERCENT = 5
SQL_DOCUMENTS = 1100
JSON_DOCUMENTS = 800

_SKIPPED_STDLIB = {
    "test", "tests", "idle_test", "ensurepip", "encodings", "pydoc_data", "dist-packages",
    "__pycache__",
}  # fmt: skip
_BLOCK = re.compile(r"^(\s*)(\.\.|:[\w ]+:|[|+*#=\-~^\"']{3,}|>>>|>)")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +", re.MULTILINE)
_ROLE = re.compile(r":[\w:+.-]+:`([^`]*)`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_MARK = re.compile(r"``?([^`]+)``?_{0,2}|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with its class and where it came from."""

    label: str
    source: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the held-out part; a function of the text alone."""
        return int(hashlib.sha256(self.text.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def collect(docs: Path = DOCS, stdlib: Path = STDLIB, seed: int = 2026) -> list[Document]:
    """Every document of the four classes.

    Raises NoCorpus where Python's documentation sources or library are not installed.
    """
    if not docs.is_dir():
        raise NoCorpus(f"no reST sources at {docs}: install Debian's python3.11-doc or name them")
    if not stdlib.is_dir():
        raise NoCorpus(f"no Python library at {stdlib}: install python3.11 or name it")
    found = [*_prose(docs), *_python(stdlib)]
    found += [Document("sql", f"generated:{i}", sql_script(seed, i)) for i in range(SQL_DOCUMENTS)]
    found += [Document("json", f"generated:{i}", json_log(seed, i)) for i in range(JSON_DOCUMENTS)]
    return found


def own_documents(root: Path = OWN) -> list[Document]:
    """The project's own prose and Python: no model learns from them, all of it is held out.

    Raises NoCorpus if `root` is not a checkout.
    """
    pages = sorted([root / "README.md", *(root / "docs").rglob("*.md")])
    sources = sorted([*(root / "specscope").rglob("*.py"), *(root / "collectors").rglob("*.py")])
    if not (root / "docs").is_dir() or not sources:
        raise NoCorpus(f"{root} is no checkout of specscope: the prompts are cut from its pages")
    documents = [
        Document("prose", str(page.relative_to(root)), markdown_text(page.read_text()))
        for page in pages
        if page.name != "data-dictionary.md"
    ]
    documents += [
        Document("python", str(source.relative_to(root)), source.read_text())
        for source in sources
        if "_pb2" not in source.name
    ]
    return [document for document in documents if len(document.text) > 500]


def markdown_text(page: str) -> str:
    """The paragraphs and list items of a Markdown text: no code, tables, headings or markup."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    outside = _LIST_ITEM.sub("\n", outside)
    blocks = re.split(r"\n\s*\n", outside)
    return "\n\n".join(filter(None, map(_markdown_paragraph, blocks)))


def _markdown_paragraph(block: str) -> str:
    if block.lstrip().startswith(("#", "|", ">")):
        return ""
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(block.split()))
    return _plain(_MARK.sub(lambda m: m[1] or m[2] or m[3], text))


def running_text(rest: str) -> str:
    """The paragraphs of a reST text: no directives, code, tables, fields, headings or markup."""
    kept = [_paragraph(block) for block in re.split(r"\n\s*\n", _without_code(rest))]
    return "\n\n".join(text for text in kept if text)


def _prose(docs: Path) -> Iterator[Document]:
    for path in sorted(docs.rglob("*.rst.txt")):
        text = running_text(path.read_text(errors="replace"))
        if len(text) > 500 and "license" not in path.name:
            yield Document("prose", str(path.relative_to(docs)), text)


def _python(stdlib: Path) -> Iterator[Document]:
    for path in sorted(stdlib.rglob("*.py")):
        inside = path.relative_to(stdlib)
        if _SKIPPED_STDLIB & set(inside.parts) or inside.name.startswith("_sysconfigdata"):
            continue
        text = path.read_text(errors="replace")
        if len(text) > 300 and not _foreign(text):
            yield Document("python", str(inside), text)


def _foreign(text: str) -> bool:
    """Whether a file carries a licence note of its own: then it is not ours to learn from."""
    notes = [line for line in text.lower().splitlines() if "copyright" in line]
    return any("python software foundation" not in note for note in notes)


def _without_code(rest: str) -> str:
    """`rest` less directives and literal blocks, which end where indentation returns."""
    kept: list[str] = []
    inside: int | None = None  # indentation of the line that opened the block
    for line in rest.expandtabs(4).splitlines():
        indent = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and indent <= inside:
            inside = None
        if inside is None:
            stripped = line.strip()
            if _opens_prose(stripped):
                continue  # what a function or class says of itself is running text
            if stripped.startswith("..") or stripped.endswith("::"):
                inside = indent
                line = line.rstrip(":") if not stripped.startswith("..") else ""
            kept.append(line)
    return "\n".join(kept)


def _opens_prose(stripped: str) -> bool:
    kinds = ("function", "method", "class", "exception", "data", "attribute", "note", "warning",
             "versionchanged", "versionadded", "c:function", "opcode", "describe")  # fmt: skip
    return stripped.startswith(".. ") and stripped[3:].split("::")[0] in kinds


def _paragraph(block: str) -> str:
    lines = [line for line in block.splitlines() if line.strip()]
    if not lines or any(_BLOCK.match(line) for line in lines):
        return ""
    text = " ".join(line.strip() for line in lines)
    text = _LINK.sub(r"\1", _ROLE.sub(lambda m: m[1].lstrip("~!").split(" <")[0], text))
    return _plain(_MARK.sub(lambda m: m[1] or m[2] or m[3], text))


def _plain(text: str) -> str:
    letters = sum(c.isalpha() or c.isspace() for c in text)
    # Headings are short, tables and signatures are mostly not letters.
    return text if len(text) > 60 and letters > 0.8 * len(text) else ""


_TABLES = {
    "users": ("id", "email", "country", "plan", "created_at"),
    "orders": ("id", "user_id", "status", "total_cents", "created_at"),
    "order_items": ("id", "order_id", "product_id", "quantity", "price_cents"),
    "products": ("id", "name", "category", "stock", "price_cents"),
    "payments": ("id", "order_id", "provider", "amount_cents", "settled_at"),
    "sessions": ("id", "user_id", "device", "started_at", "ended_at"),
    "events": ("id", "session_id", "kind", "payload", "created_at"),
    "shipments": ("id", "order_id", "carrier", "status", "shipped_at"),
}
_TEXT = {
    "country": ("DE", "FR", "US", "JP", "BR", "IN", "PL", "SE"),
    "plan": ("free", "basic", "team", "enterprise"),
    "status": ("pending", "paid", "shipped", "cancelled", "returned"),
    "category": ("books", "garden", "kitchen", "music", "toys"),
    "provider": ("card", "invoice", "transfer", "voucher"),
    "device": ("phone", "tablet", "desktop"),
    "kind": ("view", "click", "search", "add_to_cart", "checkout"),
    "carrier": ("rail", "road", "air", "bike"),
    "name": ("lamp", "kettle", "notebook", "guitar", "spade", "puzzle"),
}
_LINKS = (
    ("orders", "user_id", "users"), ("order_items", "order_id", "orders"),
    ("payments", "order_id", "orders"), ("sessions", "user_id", "users"),
    ("events", "session_id", "sessions"), ("shipments", "order_id", "orders"),
    ("order_items", "product_id", "products"),
)  # fmt: skip
_ROUTES = ("/v1/login", "/v1/cart", "/v1/orders", "/v1/search", "/v1/products", "/health")
_SERVICES = ("gateway", "checkout", "catalog", "accounts", "search", "mailer")
_ERRORS = ("connection reset by peer", "deadline exceeded", "lock wait timeout", "invalid token")


def sql_script(seed: int, index: int) -> str:
    """Script number `index`: about 1.7 kB of statements over one schema."""
    rng = random.Random(f"sql/{seed}/{index}")
    statements = [rng.choice(_STATEMENTS)(rng) for _ in range(rng.randint(8, 16))]
    return "\n\n".join(statements) + "\n"


def json_log(seed: int, index: int) -> str:
    """Log number `index`: about 3 kB, one JSON object a line."""
    rng = random.Random(f"json/{seed}/{index}")
    clock, host = rng.randint(0, 86_399), f"node-{rng.randint(1, 12):02d}"
    lines = []
    for _ in range(rng.randint(12, 22)):
        clock = (clock + rng.randint(0, 9)) % 86_400
        lines.append(json.dumps(_log_line(rng, clock, host)))
    return "\n".join(lines) + "\n"


def _log_line(rng: random.Random, clock: int, host: str) -> dict[str, object]:
    hour, minute, second = clock // 3600, clock // 60 % 60, clock % 60
    level = rng.choices(("info", "warning", "error"), (88, 8, 4))[0]
    line: dict[str, object] = {
        "time": f"2026-03-14T{hour:02d}:{minute:02d}:{second:02d}Z",
        "level": level,
        "service": rng.choice(_SERVICES),
        "host": host,
        "request_id": f"{rng.getrandbits(32):08x}",
    }
    if level == "error":
        return line | {"message": rng.choice(_ERRORS), "retry": rng.randint(1, 3)}
    status = rng.choices((200, 201, 304, 404, 503), (80, 8, 6, 4, 2))[0]
    line |= {"method": rng.choice(("GET", "GET", "GET", "POST")), "path": rng.choice(_ROUTES)}
    line |= {"status": status, "duration_ms": rng.randint(1, 400)}
    return line | {"bytes": rng.randint(200, 9000)}


def _value(rng: random.Random, column: str) -> str:
    if column in _TEXT:
        return f"'{rng.choice(_TEXT[column])}'"
    if column.endswith("_at"):
        return f"'2026-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}'"
    if column == "email":
        return f"'user{rng.randint(1, 9999)}@example.com'"
    if column == "payload":
        return "'{}'"
    return str(rng.randint(1, 9999))


def _condition(rng: random.Random, alias: str, table: str) -> str:
    column = rng.choice(_TABLES[table][1:])
    ordered = column.endswith(("_at", "_cents")) or column in ("stock", "quantity")
    operator = ">=" if ordered else "="
    return f"{alias}{column} {operator} {_value(rng, column)}"


def _select(rng: random.Random) -> str:
    table = rng.choice(list(_TABLES))
    columns = sorted(rng.sample(_TABLES[table], 3), key=_TABLES[table].index)
    return (
        f"SELECT {', '.join(columns)}\nFROM {table}\nWHERE {_condition(rng, '', table)}\n"
        f"ORDER BY {columns[-1]} DESC\nLIMIT {rng.choice((10, 20, 50, 100))};"
    )


def _join(rng: random.Random) -> str:
    child, key, parent = rng.choice(_LINKS)
    group = rng.choice(_TABLES[parent][1:])
    return (
        f"SELECT p.{group}, COUNT(*) AS {child}_count\nFROM {child} AS c\n"
        f"JOIN {parent} AS p ON p.id = c.{key}\nWHERE {_condition(rng, 'c.', child)}\n"
        f"GROUP BY p.{group}\nHAVING COUNT(*) > {rng.randint(1, 20)}\nORDER BY {child}_count DESC;"
    )


def _insert(rng: random.Random) -> str:
    table = rng.choice(list(_TABLES))
    columns = _TABLES[table][1:]
    rows = [
        "    (" + ", ".join(_value(rng, column) for column in columns) + ")"
        for _ in range(rng.randint(1, 4))
    ]
    return f"INSERT INTO {table} ({', '.join(columns)})\nVALUES\n" + ",\n".join(rows) + ";"


def _update(rng: random.Random) -> str:
    table = rng.choice(list(_TABLES))
    column = rng.choice(_TABLES[table][1:])
    return (
        f"UPDATE {table}\nSET {column} = {_value(rng, column)}\nWHERE id = {rng.randint(1, 9999)};"
    )


def _delete(rng: random.Random) -> str:
    table = rng.choice(list(_TABLES))
    return f"DELETE FROM {table}\nWHERE {_condition(rng, '', table)};"


_STATEMENTS = (_select, _select, _join, _join, _insert, _update, _delete)
