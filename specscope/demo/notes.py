"""Notes for readers of the demonstration's numbers."""

from __future__ import annotations


def notes() -> list[str]:
    """Notes that hold for every run."""
    return [
        "Classes run alone here, one cohort after the other. In a shared batch a class also "
        "waits for its neighbours, and a gate per class saves less.",
        "The models are small (6.4 M and 0.45 M parameters) and run on one processor core: the "
        "method carries over to your models, the numbers do not.",
        "Two of the four kinds of text, SQL and JSON logs, are generated; prose and Python are "
        "held-out real text.",
        "Coupled sampling gives every arm the same text for the same seed, so the arms differ "
        "in time alone.",
    ]
