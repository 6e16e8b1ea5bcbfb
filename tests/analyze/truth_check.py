"""Holds an answer of `analyze` against the truth of a table."""

from __future__ import annotations

from tables_of_truth import DECIDED, Arm, Truth

HALF_DIGIT = {"tok/s below 1000": 0.05, "tok/s": 0.5, "ms": 0.0005}
"""Half of the last digit of a drawn speed or time."""


def faults(truth: Truth, answer: dict) -> list[str]:
    """What in the answer is false; empty where it is true or says that it does not know."""
    found = []
    for verdict in answer["verdicts"]:
        if verdict["action"] in DECIDED:
            found += _verdict(truth, verdict)
    for comparison in answer["comparisons"]:
        if comparison["comparable"]:
            found += _comparison(truth, comparison)
    rates = [arm.rate for arm in truth.arms if arm.rate]
    lengths = [arm.length for arm in truth.arms if arm.length]
    lengths += [1 + arm.k * arm.rate for arm in truth.arms if arm.k and arm.rate]
    for window in [*answer["windows"], *([answer["totals"]] if answer["totals"] else [])]:
        found += _figure(window, "acceptance_rate", rates, 0.002)
        found += _figure(window, "mean_length", lengths, 0.02)
    return found


def answered(truth: Truth, answer: dict) -> bool | None:
    """Whether a class that the truth decides was decided; None where the truth decides none."""
    decidable = [k for k in truth.classes if truth.comparable and _decides(truth, k)]
    if not decidable:
        return None
    actions = {verdict["action"] for verdict in answer["verdicts"]}
    return bool(actions & set(DECIDED))


def _decides(truth: Truth, klass: str) -> bool:
    bases, arms = truth.of(klass)
    bases = [base for base in bases if not base.silent]
    if len(bases) != 1 or not arms:
        return False
    best = max(arm.speed for arm in arms) / bases[0].speed
    return best > 1.15 or best < 0.85


def _classes(truth: Truth, klass: dict) -> list[str]:
    said = {str(value).lower() for value in klass.values()}
    words = {word for value in said for word in value.replace(",", " ").split()} | said
    own = [name for name in truth.classes if name and name.lower() in words]
    if own or truth.classes == [""] or truth.layout == "blocks":
        return own or truth.classes[:1]
    return truth.classes  # it claims to hold for all of them


def rounding(*arms: Arm) -> float:
    """By how much the ratio of arms may differ, as a share: cells are drawn with few digits.

    The mean of 3.7 and 3.6 tok/s is drawn as 3.7, which is 1.4 % off.
    """
    shares = []
    for arm in arms:
        digit = HALF_DIGIT["tok/s below 1000" if arm.speed < 1000 else "tok/s"] / arm.speed
        shares.append(max(digit, HALF_DIGIT["ms"] * arm.speed / 1000))
    return 1.05 * sum(shares)


def _ratios(truth: Truth, klass: str) -> list[tuple[Arm, float, float]]:
    bases, arms = truth.of(klass)
    real = [base for base in bases if not base.silent]
    if not real and truth.outcomes:  # a blank among acceptances says that nothing was drafted
        real = bases
    return [(arm, arm.speed / base.speed, rounding(arm, base)) for arm in arms for base in real]


def _verdict(truth: Truth, verdict: dict) -> list[str]:
    action = verdict["action"]
    if not truth.comparable:
        return [f"{action} between engines or precisions"]
    found = []
    for klass in _classes(truth, verdict["class"]):
        ratios = _ratios(truth, klass)
        values = [ratio for _, ratio, _ in ratios]
        slack = max((share for *_, share in ratios), default=0.0)
        if not values:
            found.append(f"{action} in {klass!r}, which has no target-only run")
        elif action in ("keep", "set_k"):
            if max(values) < 1.0 - slack:
                found.append(f"{action} in {klass!r} at best {max(values):.3f}")
            k = verdict["k"]
            if k is not None and not any(a.k == k and r > 1 - s for a, r, s in ratios):
                found.append(f"k = {k} in {klass!r} gains nothing")
        elif action == "disable" and max(values) > 1.0 + slack:
            found.append(f"disable in {klass!r} at {max(values):.3f}")
        elif action == "no_difference" and not 0.93 < max(values) < 1.07:
            found.append(f"no_difference in {klass!r} at {max(values):.3f}")
    return found


def _comparison(truth: Truth, comparison: dict) -> list[str]:
    speedup = comparison["speedup"]
    true = []
    for klass in _classes(truth, comparison["class"]):
        own = [arm for arm in truth.arms if arm.klass == klass and arm.ran]
        # Two speculating arms may be compared, since no verdict follows.
        true += [(a.speed / b.speed, rounding(a, b)) for a in own for b in own if a is not b]
    if any(abs(speedup / value - 1) <= slack for value, slack in true):
        return []
    return [f"speedup {speedup:.3f} of {comparison['arm']} over {comparison['baseline']}"]


def _figure(window: dict, name: str, true: list[float], tolerance: float) -> list[str]:
    value = window.get(name)
    if value is None or any(abs(value - one) <= tolerance for one in true):
        return []
    return [f"{name} {value:.3f}"]
