"""`specscope engine bench`: its JSON and its printed table, an arm for every cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specscope.readers.records import Arm, Record
from specscope.readers.results.json_file import dicts, documents
from specscope.readers.source import Source

_SCHEMA = b'"specscope.engine.bench.bench/1"'
_TITLE = re.compile(rb"^copy bandwidth [\d.]+ GB/s; times in ms a round\s*$", re.MULTILINE)
_ROW = re.compile(
    r"^(\S+) +(none|model|eagle|ngram) +(\d+) +(\d+) +(\d+) +([\d.]+) +(?:[\d.]+x +)?([\d.]+) "
)


class EngineBench:
    """Cells by class, batch and context; the drafter `none` is the target-only run."""

    format = "engine-bench"

    def sniff(self, head: bytes) -> float:
        """0.95 for the schema's name, or for the line above the printed table."""
        return 0.95 if _SCHEMA in head[:4096] or _TITLE.search(head[:4096]) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One arm a cell."""
        if _SCHEMA not in source.head[:4096]:
            for line in source.stream.read().decode("utf-8", "replace").splitlines():
                row = _ROW.match(line)
                if row:
                    label, drafter, batch, context, k, *figures = row.groups()
                    place = (label, int(batch), int(context))
                    yield _arm(source.name, place, drafter, int(k), *map(float, figures))
            return
        for document in documents(source.stream):
            for cell in dicts(document):
                match cell:
                    case {
                        "label": str(label),
                        "drafter": str(drafter),
                        "batch": int(batch),
                        "context": int(context),
                        "k": int(k),
                        "tokens_per_s": int(tok_s) | float(tok_s),
                        "tokens_per_round": int(tokens) | float(tokens),
                    }:
                        place = (label, batch, context)
                        yield _arm(source.name, place, drafter, k, float(tok_s), float(tokens))


def _arm(
    input: str,
    place: tuple[str, int, int],
    drafter: str,
    k: int,
    tok_s: float,
    tokens_per_round: float,
) -> Arm:
    label, batch, context = place
    alone = drafter == "none"
    return Arm(
        input,
        "target only" if alone else f"{drafter} k={k}",
        "target_only" if alone else "speculative",
        None if alone else k,
        {"label": label, "batch": batch, "context": context},
        {"throughput_tok_s": tok_s, "tokens_per_round": tokens_per_round},
        {"scope": input} if alone else {"scope": input, "drafter": drafter},
    )
