"""A short campaign, and proof that it would find faults of the product; `make faults` is long."""

from __future__ import annotations

import time

import pytest
from faults.campaign import Episode, episode
from faults.kinds import HOUR_NS


def test_after_a_dozen_random_faults_recorded_is_stored_plus_counted_losses():
    one = episode(3, 12, spool_bytes=8 << 20)

    assert one.violations == []
    assert sum(n for kind, n in one.counts.items() if not kind.startswith("checked")) == 12
    assert one.counts["checked recorded"] > 500
    assert one.counts["checked minute_cells"] > 0
    assert one.counts["checked parts"] > 0


def test_no_row_is_refused_while_the_clock_of_the_service_is_wrong(tmp_path):
    one = Episode(tmp_path, 2, only=frozenset({"step_service"}), spool_bytes=8 << 20)
    try:
        one.start_all()
        for hours in (0, -60, 60, 0, -60):
            one.set_clock("service", hours * HOUR_NS)
            time.sleep(2.0)
        one.settle()
    finally:
        one.close()

    assert one.violations == []
    assert one.counts["checked recorded"] > 200
    assert [kind for kind in one.counts if kind.startswith("checked lost")] == []


@pytest.mark.slow
def test_a_service_that_forgets_rows_is_found():
    mutant = "service_forgets_a_row"
    found = episode(0, 4, mutant=mutant, only=frozenset({"cut"}), spool_bytes=8 << 20).violations

    assert any("lacks" in violation for violation in found), found
