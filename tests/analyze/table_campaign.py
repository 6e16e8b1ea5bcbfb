"""`make tables N=100000`: tables around known truths through `analyze`, on two cores."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from io import BytesIO
from pathlib import Path

from tables_of_truth import make
from truth_check import answered, faults

from specscope.analyze.collect import Collector
from specscope.errors import InputError
from specscope.readers.source import from_stream

PART = 500
"""Tables that are counted together; the last part is always whole."""

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
    parser.add_argument(
        "--out", type=Path, help="a file that takes the counts of each part; parts in it are done"
    )
    args = parser.parse_args()
    done = _done(args.out)
    starts = range(args.first, args.first + args.tables, PART)
    parts = [range(start, start + PART) for start in starts]
    parts = [seeds for seeds in parts if str(seeds) not in done]
    with ProcessPoolExecutor(2) as pool:
        for seeds, (false, counts) in zip(parts, pool.map(judged, parts), strict=True):
            done[str(seeds)] = {"false": false, "counts": counts}
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps({str(seeds): done[str(seeds)]}) + "\n")
    false = [one for part in done.values() for one in part["false"]]
    counts = sum((Counter(part["counts"]) for part in done.values()), Counter())
    for seed, layout, found in false[:40]:
        sys.stdout.write(f"seed {seed} ({layout}): {'; '.join(found[:3])}\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{count:8} {name}\n")
    sys.stdout.write(f"{len(false)} false answers in {counts['tables']} tables\n")
    return 1 if false else 0


def _done(path: Path | None) -> dict[str, dict]:
    """Counts by seeds of the parts in a file; of a line that broke off, none."""
    done: dict[str, dict] = {}
    if path and path.exists():
        for line in path.read_text().splitlines():
            if line.endswith("}}"):
                done.update(json.loads(line))
    return done


if __name__ == "__main__":
    sys.exit(main())
