"""A short campaign, and proof that it would find faults of the product; `make faults` is long."""

from __future__ import annotations

import pytest
from faults.campaign import episode


def test_after_a_dozen_random_faults_recorded_is_stored_plus_counted_losses():
    one = episode(3, 12)

    assert one.violations == []
    assert sum(n for kind, n in one.counts.items() if not kind.startswith("checked")) == 12
    assert one.counts["checked recorded"] > 500
    assert one.counts["checked minute_cells"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "only", "says"),
    [
        ("forgets_a_row", {"cut"}, "nowhere"),
        ("acknowledges_first", {"kill_service"}, "nowhere"),
        ("counts_backwards", {"cut"}, "rolled"),
    ],
)
def test_a_fault_of_the_product_is_found(mutant, only, says):
    found = []
    for seed in range(4):
        found = episode(seed, 4, mutant=mutant, only=frozenset(only)).violations
        if found:
            break

    assert any(says in violation for violation in found), found
