"""A replay that is interrupted goes on where it was; nobody else's parts are taken for its own."""

import dataclasses
import math

import pytest
from replay.answers import answers, trace

from specscope.errors import InputError
from specscope.replay.counters import Counted
from specscope.replay.journal import Journal
from specscope.replay.play import PlayedPart

REPLAY = {"trace": "t", "urls": ("http://a", "http://b")}


def part(number, **change):
    outcomes = tuple(dataclasses.replace(one, **change) for one in answers(trace(4)))
    return PlayedPart(number, outcomes, {"a": None, "b": Counted(4, 16, 9)})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "replay.parts.jsonl"


def test_parts_come_back_as_they_were(path):
    kept = [part(0), part(2)]
    first = Journal(path, REPLAY)
    for one in kept:
        first.add(one)

    assert Journal(path, REPLAY).parts == kept


def test_times_that_are_not_known_come_back_unknown(path):
    Journal(path, REPLAY).add(part(0, ttft_ms=math.nan, error="gone"))

    (found,) = Journal(path, REPLAY).parts

    assert all(math.isnan(one.ttft_ms) for one in found.outcomes)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_part_is_played_again_and_the_file_goes_on(path, cut):
    journal = Journal(path, REPLAY)
    journal.add(part(0))
    journal.add(part(1))
    path.write_bytes(path.read_bytes()[:-cut])

    again = Journal(path, REPLAY)
    assert [one.number for one in again.parts] == [0]
    again.add(part(1))

    assert [one.number for one in Journal(path, REPLAY).parts] == [0, 1]


def test_parts_of_another_replay_are_refused(path):
    Journal(path, REPLAY).add(part(0))
    before = path.read_bytes()

    with pytest.raises(InputError, match="another trace"):
        Journal(path, {**REPLAY, "trace": "u"})
    assert path.read_bytes() == before


def test_a_file_that_is_none_is_refused(path):
    path.write_text("notes\n")

    with pytest.raises(InputError):
        Journal(path, REPLAY)


def test_without_a_path_nothing_is_kept(tmp_path):
    journal = Journal(None, REPLAY)
    journal.add(part(0))
    journal.remove()

    assert len(journal.parts) == 1
    assert not list(tmp_path.iterdir())
