"""A replay's result as lines of text."""

from __future__ import annotations

from collections.abc import Mapping

from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action, Grade, Verdict
from specscope.replay.result import ReplayResult

PAYS: Mapping[Action, str] = {
    Action.KEEP: "b pays",
    Action.SET_K: "k = {k} pays",
    Action.DISABLE: "{arm} loses",
}


def lines(result: ReplayResult) -> list[str]:
    """A verdict a class with its reasons, then what holds of the whole."""
    judged = result.judged
    said = []
    for one in judged.verdicts:
        said.append(_headline(one.verdict, result.arms))
        said += [f"    {words.flag(flag)}" for flag in one.verdict.flags]
        said += [f"    {words.reason(reason)}" for reason in one.verdict.reasons]
    differing = (
        f", {judged.outputs_differing} differ" if judged.outputs_differing else ", all equal"
    )
    said.append(f"texts of {judged.outputs_compared} requests compared{differing}")
    for side, arm, url in zip("ab", result.arms, result.urls, strict=True):
        if judged.failed[side]:
            said.append(f"{judged.failed[side]} requests failed on {arm} ({url})")
    return said


def _headline(verdict: Verdict, arms: tuple[str, str]) -> str:
    pays = PAYS.get(verdict.action, words.ACTIONS[verdict.action])
    grade = "" if verdict.grade is Grade.NONE else f", {verdict.grade}"
    plural = "request" if verdict.pairs == 1 else "requests"
    traffic = verdict.segment.class_ or "all traffic"
    return f"{traffic}: {pays.format(k=verdict.k, arm=arms[1])} ({verdict.pairs} {plural}{grade})"
