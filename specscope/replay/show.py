"""A replay's result as lines of text."""

from __future__ import annotations

from specscope.replay.judge import Verdict
from specscope.replay.result import Result

WORDS = {
    "keep": "b pays",
    "set_k": "k = {k} pays",
    "disable": "{arm} loses",
    "no_difference": "no difference",
    "inconclusive": "inconclusive",
    "not_comparable": "not comparable",
}


def lines(result: Result) -> list[str]:
    """A verdict a class with its reasons, then what holds of the whole."""
    judged = result.judged
    said = []
    for verdict in judged.verdicts:
        said.append(_headline(verdict, result.arms))
        said += [f"    {reason}" for reason in verdict.reasons]
    differing = (
        f", {judged.outputs_differing} differ" if judged.outputs_differing else ", all equal"
    )
    said.append(f"texts of {judged.outputs_compared} requests compared{differing}")
    for side, arm, url in zip("ab", result.arms, result.urls, strict=True):
        if judged.failed[side]:
            said.append(f"{judged.failed[side]} requests failed on {arm} ({url})")
    return said


def _headline(verdict: Verdict, arms: tuple[str, str]) -> str:
    words = WORDS[verdict.action].format(k=verdict.k, arm=arms[1])
    grade = f", {verdict.grade}" if verdict.grade != "none" else ""
    plural = "request" if verdict.requests == 1 else "requests"
    return f"{verdict.class_ or 'all traffic'}: {words} ({verdict.requests} {plural}{grade})"
