"""What each screen answers about the segments of a store."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile

from specscope import queries
from specscope.cli import main
from specscope.service.assessor import Assessor
from specscope.store.connection import Store

ANSWER = ("label", "context", "output", "load", "action", "k", "grade", "confidence")
COMMANDS = (["report"], ["gate", "recommend"], ["gate", "plan"])
Answers = list[tuple[object, ...]]


def answers(where: str, *options: str) -> list[Answers]:
    """What report, recommend and plan answer, a tuple a segment; each command runs as it is."""
    found = []
    with tempfile.TemporaryDirectory() as out:
        for command in COMMANDS:
            more = ["--out", out] if command == ["report"] else []
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                code = main([*command, *more, "--store", where, "--json", *options])
            assert code in (0, 3), (command, code)
            found.append(list(map(answer, json.loads(said.getvalue())["segments"])))
    return found


def answer(segment: dict[str, object]) -> tuple[object, ...]:
    """What a screen says about a segment."""
    return tuple(segment[name] for name in ANSWER)


def answers_of_the_panel(where: str, judged: bool = True) -> Answers:
    """What the verdict panel's query reads. judged: let the service judge before."""
    with Store.open(where) as store:
        if judged:
            Assessor(store).tick()
        rows = store.rows(queries.verdicts())
    return list(map(answer, rows))


def disagreements(where: str, *options: str) -> list[str]:
    """Screens that answer otherwise than the report, of a store under its table in force."""
    report, recommend, plan = answers(where, *options)
    found = [] if report else ["the report has no segment"]
    found += ["gate recommend"] if recommend != report else []
    found += ["gate plan"] if plan != report else []
    if not options and sorted(map(str, answers_of_the_panel(where))) != sorted(map(str, report)):
        found.append("verdict panel")
    return found
