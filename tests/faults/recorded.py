"""What an engine says that it recorded, as the store must have it."""

import json
import struct
from pathlib import Path

KINDS = ("admitted", "round", "ended")


def records_of(log):
    """The records of one boot as its engine says, up to where it was killed within a line."""
    records = []
    for line in Path(log).read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def numbers(values):
    return [x if isinstance(x, float) or x is None else int(x) for x in values[:-2]] + [
        None if x is None else float(x) for x in values[-2:]
    ]


def as_stored(record):
    proposed = sum(record["k"])
    return [
        len(record["k"]), max(record["k"]), proposed, sum(record["accepted"]),
        sum(record["emitted"]), proposed + len(record["k"]), sum(record["contexts"]),
        record["waiting"], record["padded_tokens"], record["started_at"],
        shortened(record["wall_us"]), shortened(record["draft_us"]),
    ]  # fmt: skip


def shortened(value):
    """As 32 bits hold it, and as the store prints those."""
    (value,) = struct.unpack("f", struct.pack("f", value))
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return float(text)
    return value
