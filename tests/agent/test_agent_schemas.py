"""Arrow schemas follow the records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from specscope_agent.schemas import schema
from specscope_hook.columns import columns, stored_name
from specscope_hook.records import TABLES


@pytest.mark.parametrize("table", TABLES)
def test_a_schema_has_every_column_of_its_record_in_order(table):
    declared = columns(TABLES[table])

    fields = list(schema(table))

    assert [f.name for f in fields] == [stored_name(c.name) for c in declared]
    assert [f.nullable for f in fields] == [c.nullable for c in declared]
    assert [f.metadata[b"unit"].decode() for f in fields] == [c.unit for c in declared]
    assert all(f.metadata[b"meaning"] for f in fields)


def test_types_are_those_of_the_contract():
    round_, part = schema("round"), schema("request_part")

    assert round_.field("seq").type == pa.uint64()
    assert round_.field("started_at").type == pa.timestamp("ns", "UTC")
    assert round_.field("wall_us").type == pa.float32()
    assert round_.field("classes").type == pa.list_(pa.string())
    assert part.field("class").type == pa.string()
    assert part.field("gap_bins").type == pa.list_(pa.int16())


def test_a_table_that_no_record_declares_is_an_error():
    with pytest.raises(KeyError):
        schema("nonsense")
