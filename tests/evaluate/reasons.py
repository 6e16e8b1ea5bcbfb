"""Reasons of a verdict by code, for tests that pin codes and numbers."""


def codes(verdict):
    """Codes in order."""
    return [reason.code for reason in verdict.reasons]


def numbers(verdict, code, arm=None):
    """The numbers of the one reason with a code (and an arm)."""
    (found,) = [
        reason for reason in verdict.reasons if reason.code == code and arm in (None, reason.arm)
    ]
    return dict(found.numbers)


def rows(segment, code):
    """Reasons of a segment of `report.json` or of a crossover of `gate recommend --json`."""
    return [row for row in segment["reasons"] if row["code"] == code]
