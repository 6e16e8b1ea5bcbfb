"""A short campaign, and proof that it would find faults of the product; `make faults` is long."""

from __future__ import annotations

import pytest
from faults.campaign import episode


def test_after_a_dozen_random_faults_recorded_is_stored_plus_counted_losses():
    one = episode(3, 12, spool_bytes=8 << 20)

    assert one.violations == []
    assert sum(n for kind, n in one.counts.items() if not kind.startswith("checked")) == 12
    assert one.counts["checked recorded"] > 500
    assert one.counts["checked minute_cells"] > 0
    assert one.counts["checked parts"] > 0


@pytest.mark.slow
def test_a_service_that_forgets_rows_is_found():
    mutant = "service_forgets_a_row"
    found = episode(0, 4, mutant=mutant, only=frozenset({"cut"}), spool_bytes=8 << 20).violations

    assert any("lacks" in violation for violation in found), found
