"""A small part of the campaign of two sides: the rest is `make sides`."""

from gate.side_campaign import run


def test_identical_sides_have_no_winner_and_a_planted_difference_is_found():
    alike = [run(1.0, seed, every=4) for seed in range(20)]
    planted = [run(1.05, 10**6 + seed, every=4) for seed in range(20)]

    assert sum(one.found_at is not None or one.lost_at is not None for one in alike) <= 2
    assert sum(one.found_at is not None for one in planted) >= 14
    assert all(one.lost_at is None for one in planted)
