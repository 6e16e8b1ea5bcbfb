"""A small part of `make fuzz-sidecar`."""

import pytest
from ring_and_spool_fuzz import RingFuzz, SpoolFuzz, run


@pytest.mark.parametrize("kind", [RingFuzz, SpoolFuzz])
def test_random_damage_gives_no_wrong_record_no_error_and_no_wait(tmp_path, kind):
    slowest = run(kind, 1500, 14, tmp_path)

    assert slowest < 5.0  # a hang, on any machine
