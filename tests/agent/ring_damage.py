"""What somebody who may write a ring can do to it."""

import os
import random
import shutil
import time
from pathlib import Path


def cut_to_nothing(ring: Path, rng: random.Random) -> None:
    os.truncate(ring, 0)


def cut_somewhere(ring: Path, rng: random.Random) -> None:
    os.truncate(ring, rng.randrange(os.stat(ring).st_size or 1))


def copied_over(ring: Path, rng: random.Random) -> None:
    ring.write_bytes(rng.randbytes(rng.choice([100, 300_000])))


def copied_over_by_its_past(ring: Path, rng: random.Random) -> None:
    past = ring.read_bytes()
    time.sleep(rng.uniform(0, 0.1))
    ring.write_bytes(past)


def deleted(ring: Path, rng: random.Random) -> None:
    ring.unlink()


def replaced(ring: Path, rng: random.Random) -> None:
    other = ring.with_suffix(".other")
    shutil.copyfile(ring, other) if rng.random() < 0.5 else other.write_bytes(b"something else")
    os.rename(other, ring)


def flipped(ring: Path, rng: random.Random) -> None:
    with ring.open("r+b") as file:
        place = rng.choice([rng.randrange(18 * 8), rng.randrange(512, 25_000)])
        file.seek(place)
        byte = file.read(1) or b"\0"
        file.seek(place)
        file.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


DAMAGES = (
    cut_to_nothing,
    cut_somewhere,
    copied_over,
    copied_over_by_its_past,
    deleted,
    replaced,
    flipped,
)
