"""SQL scripts and JSON logs from a seeded generator: text that a machine writes is predictable.

It stands for structured traffic, not for a real system's; how far it differs from natural text
is partly of our making, and the demo says so.
"""

import json
import random

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
