"""Hooks and sidecars of different versions read each other: no column is ever `corrupt`."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from agent_support import a_boot

from specscope_agent.cut import cut
from specscope_agent.origin import Origin
from specscope_agent.rings import OpenRing, Rings
from specscope_agent.schemas import schema
from specscope_agent.source import Source
from specscope_agent.wire import decode
from specscope_hook import ring as ring_module
from specscope_hook.columns import READABLE_VERSIONS, SCHEMA_VERSION
from specscope_hook.errors import CorruptRing
from specscope_hook.payload import CODES
from specscope_hook.ring import REQUEST, ROUND, Cursor, Ring, RingReader
from specscope_hook.ring_records import LAYOUT, RecordLayout

STORED = Path(__file__).parents[1] / "data" / "versions"
LAYOUT_HASHES = {3: "0845db1d0e77"}
"""Of the columns that rings of each version carry. A new column changes the hash: write the new
one down here. Raise SCHEMA_VERSION only when parts of the page itself move."""


@pytest.fixture
def stored_ring(tmp_path):
    path = tmp_path / "stored.ring"
    path.write_bytes(gzip.decompress((STORED / "ring-2.gz").read_bytes()))
    return path


def opened(path) -> OpenRing:
    reader = RingReader.open(path)
    return OpenRing(reader, Source.of(reader.boot), Origin.of(reader))


def test_the_layout_of_a_version_is_pinned():
    assert LAYOUT_HASHES[SCHEMA_VERSION] == LAYOUT.hash
    assert SCHEMA_VERSION in READABLE_VERSIONS


def test_the_header_of_a_ring_names_its_columns(tmp_path):
    boot = a_boot()
    ring = Ring.create(tmp_path / "a.ring", boot, 4096)

    header = RingReader.open(ring.path).boot

    assert RecordLayout.of(header) == RecordLayout.of({"layout": LAYOUT.as_json()})
    assert header["layout_hash"] == LAYOUT.hash


def test_a_ring_of_the_version_before_gives_the_rows_that_its_own_sidecar_made(stored_ring):
    made = cut(opened(stored_ring), Cursor())

    assert made.losses.rows == []
    for table in ("round", "request_part", "request"):
        before = decode((STORED / f"batch-{table}.arrow").read_bytes())
        now = made.tables[table].select(before.column_names)
        assert now.to_pylist() == before.to_pylist(), table


def test_what_the_version_before_did_not_record_counts_as_all_verified(stored_ring):
    made = cut(opened(stored_ring), Cursor())

    rounds, parts = made.tables["round"].to_pylist(), made.tables["request_part"].to_pylist()
    assert [row["verified"] for row in rounds] == [row["proposed"] for row in rounds]
    assert [part["verified"] for part in parts] == [[]] * len(parts)


def packed(columns, values, batch=0) -> bytes:
    """A payload of any layout: scalars, then arrays."""
    flat, codes = [], "<"
    for column in columns:
        value = values.get(column.name, 7)
        codes += f"{batch if column.repeated else ''}{CODES[column.base]}"
        flat += [value] * batch if column.repeated else [value]
    return struct.pack(codes, *flat)


def foreign_ring(tmp_path, monkeypatch, layout: dict[str, str]):
    """A ring whose hook knows other columns than this version."""
    parsed = RecordLayout.of({"layout": layout})
    monkeypatch.setattr(ring_module, "LAYOUT", parsed)
    ring = Ring.create(tmp_path / "foreign.ring", a_boot(), 1 << 14)
    started_at = 1_790_000_000_000_000_000
    usual = {"started_at": started_at, "ended_at": 0, "k": 3, "verified": 2, "accepted": 1,
             "emitted": 2, "ends": 0, "timing_source": 0, "classes": 0, "arm": 255}  # fmt: skip
    for batch in (1, 2, 40):
        ring.push(ROUND, packed(parsed.round, usual, batch), batch)
    ring.push(REQUEST, packed(parsed.request, usual | {"admitted_at": started_at}))
    ring.close()
    return ring.path


def test_columns_that_a_newer_hook_adds_are_dropped_and_said(tmp_path, monkeypatch, caplog):
    layout = LAYOUT.as_json()
    newer = {
        "round": "sooner:f64 " + layout["round"] + " tree_width:u16[]",
        "request": layout["request"].replace("digest:u64", "digest:u64 priority:u8"),
    }

    ring = opened(foreign_ring(tmp_path, monkeypatch, newer))
    made = cut(ring, Cursor())

    assert made.losses.rows == []
    assert made.tables["round"].schema == schema("round")
    assert made.tables["round"].column("proposed").to_pylist() == [3, 6, 120]
    assert made.tables["round"].column("verified").to_pylist() == [2, 4, 80]
    assert made.tables["request"].num_rows == 1
    assert all(name in caplog.text for name in ("sooner", "tree_width", "priority"))


def test_columns_that_an_older_hook_lacks_are_unknown(tmp_path, monkeypatch):
    layout = LAYOUT.as_json()
    older = {
        "round": layout["round"].replace("prefill_us:f32 ", "").replace(" verified:u8[]", ""),
        "request": layout["request"].replace(" ttft_ms:f32", ""),
    }

    made = cut(opened(foreign_ring(tmp_path, monkeypatch, older)), Cursor())

    assert made.losses.rows == []
    rounds = made.tables["round"]
    assert rounds.column("prefill_us").to_pylist() == [None] * 3
    assert rounds.column("verified").to_pylist() == rounds.column("proposed").to_pylist()
    assert made.tables["request"].column("ttft_ms").to_pylist() == [None]


@pytest.mark.parametrize(
    "layout",
    [
        "nonsense",
        {"round": 3, "request": ""},
        {"round": "started_at:time"},
        {"round": "started_at:varchar", "request": ""},
        {"round": "a:u8 a:u8", "request": ""},
        {"round": " ".join(f"c{n}:u8" for n in range(400)), "request": ""},
    ],
    ids=lambda layout: str(layout)[:40],
)
def test_a_ring_whose_columns_make_no_sense_is_refused_and_stops_no_other(tmp_path, layout):
    with pytest.raises(CorruptRing):
        RecordLayout.of({"layout": layout})
    good = Ring.create(tmp_path / "good.ring", a_boot(), 4096)
    bad = Ring.create(tmp_path / "wrong.ring", a_boot("r1"), 4096)
    text = json.dumps({**RingReader.open(bad.path).boot, "layout": layout}).encode()
    bad.close()
    with bad.path.open("r+b") as file:
        file.seek(4096)
        file.write(text)
        file.seek(12 * 8)
        file.write(len(text).to_bytes(8, "little"))

    rings = Rings(tmp_path)
    rings.refresh()

    assert [ring.path for ring in rings.open] == [good.path]
    rings.close()


def test_drafts_that_the_engine_trimmed_are_told_apart_from_those_it_verified(tmp_path):
    from specscope_hook.recorder import Recorder

    ring = Ring.create(tmp_path / "a.ring", a_boot(), 1 << 14)
    recorder = Recorder(ring, salt="s")
    usual = {"started_at": 1_790_000_000_000_000_000, "wall_us": 1.0, "classes": [0, 0]}
    for verified in (None, [4, 2], np.array([4, 2], np.uint8)):
        recorder.round(**usual, requests=[1, 2], contexts=[9, 9], k=[4, 4], accepted=[1, 2],
                       emitted=[2, 3], ends=[0, 0], verified=verified)  # fmt: skip

    made = cut(opened(ring.path), Cursor())

    assert made.tables["round"].column("n_q").to_pylist() == [10, 8, 8]
    assert made.tables["round"].column("verified").to_pylist() == [8, 6, 6]
    assert made.tables["round"].column("class_verified").to_pylist() == [[8], [6], [6]]
    parts = {part["request"]: part["verified"] for part in made.tables["request_part"].to_pylist()}
    assert parts == {1: [], 2: [4, 2, 2]}
