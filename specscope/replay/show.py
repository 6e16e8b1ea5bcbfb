"""A replay's result as lines of text."""

from __future__ import annotations

from collections.abc import Mapping

from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action, Grade, Verdict
from specscope.replay.counters import Counted
from specscope.replay.result import ReplayResult

PAYS: Mapping[Action, str] = {
    Action.KEEP: "b pays",
    Action.SET_K: "k = {k} pays",
    Action.DISABLE: "{arm} loses",
}


def lines(result: ReplayResult) -> list[str]:
    """A verdict per class with its reasons, then the lines on the whole replay."""
    said = []
    for one in result.judged.verdicts:
        said.append(_headline(one.verdict, result.arms))
        said += [f"    {words.flag(flag)}" for flag in one.verdict.flags]
        said += [f"    {words.reason(reason)}" for reason in one.verdict.reasons]
    return said + after_verdicts(result)


def after_verdicts(result: ReplayResult) -> list[str]:
    """Lines on the whole replay: texts, counters, failures."""
    judged = result.judged
    differing = (
        f", {judged.outputs_differing} differ" if judged.outputs_differing else ", all equal"
    )
    said = [f"texts of {judged.outputs_compared} requests compared{differing}"]
    for side, arm in zip("ab", result.arms, strict=True):
        said += _counters(arm, judged.counted.get(side))
    for side, arm, url in zip("ab", result.arms, result.urls, strict=True):
        if judged.failed[side]:
            why = judged.failures.get(side)
            most = f"; most often: {why}" if why else ""
            said.append(f"{judged.failed[side]} requests failed on {arm} ({url}){most}")
    return said


def answer(verdict: Verdict, arms: tuple[str, str]) -> str:
    """The verdict on the second endpoint, in words."""
    pays = PAYS.get(verdict.action, words.ACTIONS[verdict.action])
    return pays.format(k=verdict.k, arm=arms[1])


def _counters(arm: str, counted: Counted | None) -> list[str]:
    if counted is None:
        return []
    if counted.mean_length is None:
        return [f"{arm} by its own counters: no drafts"]
    return [
        f"{arm} by its own counters: {counted.mean_length:.2f} tokens per drafted round, "
        f"{counted.accepted} of {counted.proposed} proposals accepted"
    ]


def _headline(verdict: Verdict, arms: tuple[str, str]) -> str:
    grade = "" if verdict.grade is Grade.NONE else f", {verdict.grade}"
    plural = "request" if verdict.pairs == 1 else "requests"
    traffic = verdict.segment.class_ or "all traffic"
    return f"{traffic}: {answer(verdict, arms)} ({verdict.pairs} {plural}{grade})"
