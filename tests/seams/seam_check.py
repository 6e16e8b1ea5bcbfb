"""Hold an engine's source against the seams of its adapter.

    seam_check.py ENGINE=DIRECTORY … [--table FILE]     directories of unpacked wheels

Prints each seam that the source lacks, and exits with 1 if there is any. With --table it writes
the table of versions that fit, for the documentation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seam_source import class_of, method_of, names_in, parameters_of, parsed
from seam_table import ENGINES, Seam

NAMES = {"vllm": "vLLM", "sglang": "SGLang", "transformers": "transformers"}


def missing(seams: Sequence[Seam], directory: Path) -> Iterator[str]:
    """Yield, in words, each seam that the source in a directory lacks."""
    for seam in seams:
        tree = parsed(directory / seam.file)
        owner = None if tree is None else class_of(tree, seam.owner)
        if owner is None:
            yield f"{seam.file} has no class {seam.owner}"
            continue
        for name, parameters in seam.methods.items():
            method = method_of(owner, name)
            if method is None:
                yield f"{seam.file}: {seam.owner} has no method {name}"
                continue
            for parameter in sorted(set(parameters) - set(parameters_of(method))):
                yield f"{seam.file}: {seam.owner}.{name} has no parameter {parameter}"
        for field in sorted(set(seam.fields) - names_in(owner)):
            yield f"{seam.file}: {seam.owner} has no {field}"


def count(seams: Sequence[Seam]) -> tuple[int, int]:
    """Methods and fields that are looked at."""
    return sum(len(seam.methods) for seam in seams), sum(len(seam.fields) for seam in seams)


def version_of(engine: str, directory: Path) -> str:
    """The version by the wheel's own metadata."""
    (info,) = directory.glob(f"{engine}-*.dist-info")
    return info.name.removeprefix(f"{engine}-").removesuffix(".dist-info")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="ENGINE=DIRECTORY")
    parser.add_argument("--table", type=Path)
    args = parser.parse_args(argv)
    rows, faults = [], 0
    for source in args.sources:
        engine, _, path = source.partition("=")
        seams, directory = ENGINES[engine], Path(path)
        version = version_of(engine, directory)
        lacks = list(missing(seams, directory))
        methods, fields = count(seams)
        title = f"{NAMES[engine]} {version}"
        print(f"{title}: {methods} methods, {fields} fields, {len(lacks)} lacking")
        for line in lacks:
            print(f"  {line}")
        faults += len(lacks)
        if not lacks:
            rows.append(f"| {NAMES[engine]} | {version} | {methods} | {fields} |")
    if args.table is not None and not faults:
        args.table.write_text("\n".join([*_HEAD, *rows, ""]))
    return 1 if faults else 0


_HEAD = (
    "# Versions whose source fits the adapters",
    "",
    "`make seams` unpacks the newest release of each engine, holds every method, parameter and",
    "field that an adapter touches against its source, and writes this table. It shows that the",
    "hook can attach; [the pages of the engines](vllm.md) say which versions it has run in.",
    "",
    "| engine | version | methods | fields |",
    "|---|---|---|---|",
)

if __name__ == "__main__":
    sys.exit(main())
