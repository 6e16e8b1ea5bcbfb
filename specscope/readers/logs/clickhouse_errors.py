"""Error lines of a ClickHouse server, as JSON or from `system.text_log`: our own pipeline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from specscope.readers.logs.lines import INTEGER, REAL
from specscope.readers.records import Finding, Record
from specscope.readers.results.json_file import documents, looks_like_json
from specscope.readers.source import Source

_CODE = re.compile(rf"Code: {INTEGER}")
_PARTS = re.compile(
    rf"Too many (?:inactive )?parts \({INTEGER}(?: with average size of {REAL} ([KMG]i)?B)?\)"
    r"(?: in (?:table )?'?([\w.`\-]+)'?)?"
)
_PARTITIONS = re.compile(r"Too many partitions for single INSERT block")
_KIB = {None: 1 / 1024, "Ki": 1.0, "Mi": 1024.0, "Gi": 1024.0**2}


class ClickHouseErrors:
    """Lines with `message`, `level` and `logger_name`, or the columns of text_log."""

    format = "clickhouse-errors"

    def sniff(self, head: bytes) -> float:
        """0.9 for JSON lines with a ClickHouse exception in them."""
        found = b"DB::Exception" in head or (b'"logger_name"' in head and b'"message"' in head)
        return 0.9 if looks_like_json(head) and found else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One finding per kind of error."""
        others: Counter[str] = Counter()
        for document in documents(source.stream):
            for found in document if isinstance(document, list) else [document]:
                message = _message(found)
                if not message:
                    continue
                parts = _PARTS.search(message)
                if parts:
                    yield _too_many_parts(parts, message)
                elif _PARTITIONS.search(message):
                    yield Finding(
                        "TOO_MANY_PARTS",
                        "one insert block spans more than 100 partitions: partition by day "
                        "or month",
                        {"code": 252, "retryable_now": False},
                    )
                elif code := _CODE.search(message):
                    others[code.group(1)] += 1
        for code_, times in others.items():
            yield Finding(
                "STORE_ERROR", f"code {code_}, {times} times", {"code": int(code_), "times": times}
            )


def _message(found: Any) -> str | None:
    if not isinstance(found, dict):
        return None
    message = found.get("message") or found.get("exception")
    return message if isinstance(message, str) else None


def _too_many_parts(parts: re.Match[str], message: str) -> Finding:
    number = int(parts.group(1))
    average = float(parts.group(2)) * _KIB[parts.group(3)] if parts.group(2) else None
    total = number * average / 1024 if average is not None else None
    code = _CODE.search(message)
    size = (
        f" of {average:.2f} KiB on average, {total:.0f} MiB in all" if average is not None else ""
    )
    return Finding(
        "TOO_MANY_PARTS",
        f"{number} parts{size}: many small inserts, not volume (cascaded views multiply them). Not "
        "retryable at once: back off for minutes and spool to disk; a network timeout is another "
        "case and needs a stable insert_deduplication_token per batch",
        {
            "code": int(code.group(1)) if code else None,
            "parts": number,
            "average_kib": average,
            "total_mib": round(total, 1) if total is not None else None,
            "table": parts.group(4),
            "retryable_now": False,
        },
    )
