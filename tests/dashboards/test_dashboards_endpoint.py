"""Whoever has no Grafana asks the same of the service's read endpoint, and gets the same rows."""

from __future__ import annotations

import asyncio
import json

import pytest

from specscope.service.reader import Question, Reader
from specscope_dashboards.rendering import rendered

QUERIES = {
    f"{name}: {panel['title']}": panel["targets"][0]["rawSql"]
    for name, dashboard in rendered().items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
}


@pytest.mark.parametrize("chosen", [{}, {"replica": ["replica-1"], "class": ["sql"]}])
def test_the_guard_lets_every_panel_through_and_nothing_is_lost_on_the_way(screen, chosen):
    async def ask():
        reader = Reader.open(screen.store)
        try:
            answers = {}
            for title, sql in QUERIES.items():
                question = Question(screen.expanded(sql, chosen), format="JSONEachRow")
                answer = await reader.answer(question)
                answers[title] = [json.loads(line) for line in answer.body.splitlines()]
            return answers
        finally:
            await reader.close()

    answers = asyncio.run(ask())

    for title, sql in QUERIES.items():
        direct = screen.show(sql, **chosen)
        assert len(answers[title]) == len(direct), title
        assert [list(row) for row in answers[title]] == [list(row) for row in direct], title
