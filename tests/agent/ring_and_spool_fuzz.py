"""Random damage to rings and spool files, and what must hold whatever the bytes say.

Each input is a whole file with a few of its bytes, words or lengths changed, at places that mean
something more often than not. A reader must come back, raise nothing but its own errors, give
no record that was not written, and keep its memory.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
import zlib
from pathlib import Path

from specscope_agent import batchfile
from specscope_agent.batchfile import Batch
from specscope_agent.lane import Lane
from specscope_agent.source import Source
from specscope_agent.wire import Encoded
from specscope_hook import layout as at
from specscope_hook.boot import new_boot
from specscope_hook.errors import RingError
from specscope_hook.peek import RingPeek
from specscope_hook.ring import NAME_CLASS, ROUND, Cursor, Ring, RingReader
from specscope_hook.settings import HookSettings

CAPACITY = 4096
NUMBERS = (0, 1, 7, 8, 24, 255, 4095, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class RingFuzz:
    """One ring file of a dead writer, damaged and restored again and again."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        settings = HookSettings(None, "fuzz")
        boot = new_boot(settings, engine="e", engine_version="1", target="t")
        ring = Ring.create(folder / "a.ring", boot, CAPACITY)
        reader = RingReader.open(ring.path)
        self.payloads, cursor = set(), Cursor()
        ring.name_id(NAME_CLASS, "sql")
        for index in range(90):  # more than once round, so that there is a past
            payload = bytes([index]) * rng.randrange(1, 200)
            self.payloads.add(payload)
            ring.push(ROUND, payload, index)
            ring.flush()
            if index < 70:
                _, cursor, _ = reader.pull(cursor, 1 << 20)
                reader.release(cursor)
        self.cursor = cursor
        reader.close()
        ring.close()
        self.path = ring.path
        self._whole = ring.path.read_bytes()
        self._file = os.open(ring.path, os.O_RDWR)

    def one(self) -> str:
        """One input. Returns how it ended."""
        rng = self._rng
        touched = [self._damage() for _ in range(rng.choice((1, 1, 1, 2, 3, 6)))]
        cut = rng.random() < 0.02
        if cut:
            os.ftruncate(self._file, rng.randrange(len(self._whole)))
        try:
            return "records" if self._read() else "nothing"
        except RingError:
            return "refused"
        finally:
            if cut:
                os.ftruncate(self._file, len(self._whole))
                os.pwrite(self._file, self._whole, 0)
            for offset, size in touched:
                os.pwrite(self._file, self._whole[offset : offset + size], offset)

    def _damage(self) -> tuple[int, int]:
        rng = self._rng
        kind = rng.random()
        if kind < 0.35:
            offset = rng.randrange(17) * 8
            number = rng.choice(NUMBERS) if rng.random() < 0.5 else rng.getrandbits(64)
            raw = struct.pack("<Q", number)
        elif kind < 0.6:
            offset = at.DATA + rng.randrange(CAPACITY // 8) * 8
            raw = struct.pack("<Q", rng.choice(NUMBERS))
        elif kind < 0.8:
            offset = (
                rng.randrange(18 * 8) if rng.random() < 0.5 else rng.randrange(len(self._whole))
            )
            raw = bytes([self._whole[offset] ^ 1 << rng.randrange(8)])
        else:
            offset = rng.choice((at.BOOT, at.NAMES, at.CONTROL, at.FAULT_TEXT, at.DATA))
            raw = rng.randbytes(rng.randrange(1, 64))
        os.pwrite(self._file, raw, offset)
        return offset, len(raw)

    def _read(self) -> bool:
        """Whether any record came of it."""
        rng = self._rng
        kind = RingPeek if rng.random() < 0.1 else RingReader
        reader = kind.open(self.path)
        try:
            cursor = rng.choice(
                (
                    Cursor(),
                    self.cursor,
                    self.cursor,
                    Cursor(rng.getrandbits(20) & ~7, rng.getrandbits(7)),
                )
            )
            if isinstance(reader, RingPeek):
                records, _ = reader.look(reader.newest(1 << 16))
                assert all(record.payload in self.payloads for record in records)
                return bool(records)
            seqs: list[int] = []
            for _ in range(3):
                records, after, gaps = reader.pull(cursor, rng.choice((1, 500, 1 << 20)))
                assert all(record.payload in self.payloads for record in records)
                assert after.position >= cursor.position
                assert all(gap.count > 0 and gap.first_seq >= 0 for gap in gaps)
                seqs += [record.seq for record in records]
                if rng.random() < 0.2:
                    reader.release(after)
                cursor = after
            assert seqs == sorted(set(seqs))
            reader.names(NAME_CLASS), reader.fault_text, reader.control_text, reader.ended
            if rng.random() < 0.05:
                reader.control_write("{}")
                os.pwrite(self._file, self._whole[at.CONTROL : at.CONTROL + 2], at.CONTROL)
            os.pwrite(self._file, self._whole[: at.WORDS.size], 0)
            return bool(seqs)
        finally:
            reader.close()


class SpoolFuzz:
    """One batch file, damaged and restored again and again; now and then a whole lane."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        source = Source("r0", "b0")
        tables = (Encoded("round", 3, rng.randbytes(200)), Encoded("loss", 1, rng.randbytes(100)))
        self._batch = Batch(source, 2, 1, Cursor(64, 9), frozenset({"boot"}), tables)
        self._lane = Lane(folder, source)
        self._lane.put(self._batch)
        (self._path,) = self._lane.folder.glob("*.batch")
        self._whole = self._path.read_bytes()
        self._header_bytes = struct.unpack_from("<I", self._whole, 12)[0]

    def one(self) -> str:
        """One input. Returns how it ended."""
        rng = self._rng
        raw = self._hostile() if rng.random() < 0.3 else self._damaged()
        self._path.write_bytes(raw)
        batch, summary = batchfile.read(self._path), batchfile.summary(self._path)
        assert (batch is None) == (summary is None)
        if batch is not None and summary is not None:
            assert summary[0].number == batch.number
            assert [t.rows for t in summary[0].tables] == [t.rows for t in batch.tables]
        if rng.random() < 0.02 and batch is not None:
            lane = Lane.load(self._lane.folder)
            assert lane is not None
            lane.holes()
        return "torn" if batch is None else "whole"

    def _damaged(self) -> bytes:
        rng, raw = self._rng, bytearray(self._whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        kind = rng.random()
        if kind < 0.2:
            del raw[rng.randrange(len(raw)) :]
        elif kind < 0.3:
            raw += rng.randbytes(rng.randrange(100))
        return bytes(raw)

    def _hostile(self) -> bytes:
        """Another header with a right check: of another version, or of somebody who means ill."""
        rng = self._rng
        header = json.loads(self._whole[16 : 16 + self._header_bytes])
        name = rng.choice(list(header))
        values = (
            None,
            -1,
            1 << 70,
            "x",
            [],
            {},
            [[]],
            [["a", 1, 1 << 40]],
            [["a", -1, -5]],
            1.5,
            True,
        )
        header[name] = rng.choice(values)
        text = json.dumps(header).encode()
        length = rng.choice((len(text), 0, 1 << 31)) if rng.random() < 0.1 else len(text)
        body = struct.pack("<I", length) + text + self._whole[16 + self._header_bytes :]
        return batchfile.MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def run(kind: type[RingFuzz] | type[SpoolFuzz], count: int, seed: int, folder: Path) -> float:
    """So many inputs; seconds of the slowest. Raises whatever a reader lets out."""
    fuzz, slowest = kind(folder, random.Random(seed)), 0.0
    for _ in range(count):
        began = time.thread_time()
        fuzz.one()
        slowest = max(slowest, time.thread_time() - began)
    return slowest
