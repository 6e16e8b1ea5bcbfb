"""Waiting for what a busy machine does late. Every wait of the tests has this one patience."""

import time

PATIENCE_S = 180.0  # for what takes a second on a machine with nothing else to do


def until(condition, seconds=PATIENCE_S):
    """What `condition` returns, as soon as that is true of it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds:.0f} s"
        time.sleep(0.02)
    return found
