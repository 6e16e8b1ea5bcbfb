"""A small part of `make faults-sidecar`."""

from ring_and_spool_campaign import episode


def test_whatever_happens_between_engine_and_service_is_stored_or_counted():
    wrong, figures, faults = episode(seed=14, seconds=12.0)

    assert wrong == [], figures
    assert faults > 5
