"""A small part of the campaign of gate commands under faults: the rest is `make gate-kills`."""

import pytest
from gate_kills import BROKEN, campaign


@pytest.mark.slow
def test_the_engine_is_at_the_last_approved_table_whatever_is_killed(tmp_path):
    counts = campaign(tmp_path, faults=5, seed=2)

    assert {name: counts[name] for name in BROKEN} == dict.fromkeys(BROKEN, 0), counts
    assert counts["faults"] >= 5
    assert counts["rounds"] > 100
