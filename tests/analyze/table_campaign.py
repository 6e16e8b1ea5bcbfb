"""`make tables N=100000`: tables around known truths through `analyze`, on two cores."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO

from tables_of_truth import make
from truth_check import answered, faults

from specscope.analyze.collect import Collector
from specscope.errors import InputError
from specscope.readers.source import from_stream

EMPTY = {"verdicts": [], "comparisons": [], "windows": [], "totals": None}


def answer_of(text: str, name: str) -> dict:
    """The answer to one table; an empty one where it was refused."""
    collector = Collector()
    collector.read(from_stream(name, BytesIO(text.encode())))
    try:
        return collector.result().as_json()
    except InputError:
        return EMPTY


def judged(seeds: range) -> tuple[list[tuple[int, str, list[str]]], Counter]:
    """(seed, layout and faults of each false answer, counts) over some seeds."""
    false, counts = [], Counter()
    for seed in seeds:
        truth = make(seed)
        answer = answer_of(truth.text, truth.name)
        found = faults(truth, answer)
        if found:
            false.append((seed, truth.layout, found))
        told = answered(truth, answer)
        counts["tables"] += 1
        counts["decidable"] += told is not None
        counts["decided"] += bool(told)
        if told is not None:
            counts[f"{truth.layout} {'decided' if told else 'open'}"] += 1
    return false, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=int, nargs="?", default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    args = parser.parse_args()
    end, step = args.first + args.tables, 500
    chunks = [range(s, min(s + step, end)) for s in range(args.first, end, step)]
    false, counts = [], Counter()
    with ProcessPoolExecutor(2) as pool:
        for found, own in pool.map(judged, chunks):
            false += found
            counts += own
    for seed, layout, found in false[:40]:
        sys.stdout.write(f"seed {seed} ({layout}): {'; '.join(found[:3])}\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{count:8} {name}\n")
    sys.stdout.write(f"{len(false)} false answers in {counts['tables']} tables\n")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
