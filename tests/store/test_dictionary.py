from __future__ import annotations

from pathlib import Path

from specscope.store.dictionary import render
from specscope.store.tables import RECORDS

PAGE = Path(__file__).parents[2] / "docs" / "data-dictionary.md"


def test_the_data_dictionary_is_what_the_records_say():
    assert PAGE.read_text() == render(), (
        "run: python -m specscope.store.dictionary > docs/data-dictionary.md"
    )


def test_every_table_is_in_the_data_dictionary():
    assert [line[5:-1] for line in render().splitlines() if line.startswith("### ")] == list(
        RECORDS
    )
