from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from store.traffic import Traffic, stream, table

from specscope.service.intake import admit
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.schemas import schema

NOW = time.time_ns()
DAY = 86_400 * 10**9


def message(**tables):
    batch = wire.Batch(
        source=wire.Source(replica="r0", boot="b0"), number=4, first_seq=100, next_seq=140
    )
    batch.tables.extend(wire.Table(name=name, arrow=arrow) for name, arrow in tables.items())
    return batch


def rounds(**changes):
    row = Traffic().round_row(Traffic().rounds[0])
    return table("round", [row | changes])


def losses(admitted):
    return admitted.losses().to_pylist()


def test_a_batch_that_is_as_it_should_be_passes_unchanged():
    traffic = Traffic()
    tables = traffic.batches()[0]

    admitted = admit(traffic.messages()[0], NOW)

    assert admitted.refused == 0
    assert {name: rows.to_pylist() for name, rows in admitted.tables.items()} == {
        name: rows.to_pylist() for name, rows in tables.items()
    }


def test_a_column_that_is_missing_is_unknown():
    rows = rounds().drop_columns(["idle_us", "classes"])

    admitted = admit(message(round=stream(rows)), NOW)

    (row,) = admitted.tables["round"].to_pylist()
    assert row["idle_us"] is None
    assert row["classes"] == []
    assert admitted.tables["round"].schema == schema("round")


def test_a_column_that_must_be_known_and_is_missing_refuses_the_table():
    rows = rounds().drop_columns(["seq"])

    admitted = admit(message(round=stream(rows)), NOW)

    assert "round" not in admitted.tables
    assert admitted.refused == 1
    assert losses(admitted)[0]["detail"] == "column seq is missing"
    assert losses(admitted)[0]["count"] is None


def test_a_column_that_nobody_knows_is_counted_and_dropped():
    rows = rounds().append_column("surprise", pa.array([1]))

    admitted = admit(message(round=stream(rows)), NOW)

    assert admitted.unknown_columns == 1
    assert admitted.tables["round"].schema == schema("round")


def test_the_order_of_columns_does_not_matter():
    rows = rounds()
    turned = rows.select(list(reversed(rows.column_names)))

    admitted = admit(message(round=stream(turned)), NOW)

    assert admitted.tables["round"].to_pylist() == rows.to_pylist()


def test_a_number_that_does_not_fit_its_type_refuses_the_table():
    rows = rounds()
    wide = rows.set_column(rows.schema.get_field_index("k"), "k", pa.array([300], pa.uint16()))

    admitted = admit(message(round=stream(wide)), NOW)

    assert "round" not in admitted.tables
    assert losses(admitted)[0]["reason"] == "refused"


def test_bytes_that_are_no_arrow_are_refused_and_the_rest_is_kept():
    admitted = admit(message(round=b"nonsense", request_part=b"", boot=boot()), NOW)

    assert set(admitted.tables) == {"boot", "loss"}
    assert {loss["table"] for loss in losses(admitted)} == {"round", "request_part"}


def boot():
    return stream(table("boot", [Traffic().boot_row()]))


def test_a_torn_arrow_stream_never_raises():
    whole = stream(Traffic().batches()[0]["round"])

    for end in range(0, len(whole), 97):
        admitted = admit(message(round=whole[:end]), NOW)
        assert admitted.refused >= 0


def test_flipped_bytes_in_an_arrow_stream_never_raise():
    whole = bytearray(stream(Traffic().batches()[0]["round"]))

    for at in range(0, len(whole), 101):
        torn = bytearray(whole)
        torn[at] ^= 0xFF
        admit(message(round=bytes(torn)), NOW)


def test_a_table_that_does_not_exist_is_refused_and_so_are_the_ledger_and_policies():
    admitted = admit(message(batch=boot(), policy=policy(), system=boot()), NOW)

    assert {loss["table"] for loss in losses(admitted)} == {"batch", "policy", "system"}
    assert set(admitted.tables) == {"loss"}


def policy():
    row = {
        "policy": 1, "created_at": NOW, "kind": "table", "seed": 0, "arms": [], "first_pair": 0,
        "table": '{"policy": 1}', "note": "",
    }  # fmt: skip
    return stream(table("policy", [row]))


@pytest.mark.parametrize("name", ["round", "boot", "loss", "device"])
def test_nobody_writes_in_another_s_name(name):
    now = {"lost_at": NOW, "started_at": NOW, "sampled_at": NOW}
    row = {field.name: now.get(field.name, "" if field.type == pa.string() else None)
           for field in schema(name)}  # fmt: skip
    row |= {f.name: 0 for f in schema(name) if not f.nullable and row[f.name] is None}
    row |= {f.name: [] for f in schema(name) if pa.types.is_list(f.type)}
    mine, forged = row | {"replica": "r0", "boot": "b0"}, row | {"replica": "r1", "boot": "b0"}

    admitted = admit(message(**{name: stream(table(name, [mine, forged]))}), NOW)

    assert {r["replica"] for r in admitted.tables[name].to_pylist()} == {"r0"}
    assert admitted.refusals == {"refused": 1}


def test_nobody_writes_for_another_boot_of_its_replica():
    admitted = admit(message(round=stream(rounds(boot="b1"))), NOW)

    assert "round" not in admitted.tables
    assert admitted.refusals == {"refused": 1}


def test_rows_outside_what_the_store_keeps_are_refused_as_clock():
    times = [NOW - 4 * DAY, NOW - 2 * DAY, NOW, NOW + 2 * 3600 * 10**9]
    rows = pa.concat_tables(rounds(started_at=at, seq=200 + i) for i, at in enumerate(times))

    admitted = admit(message(round=stream(rows)), NOW)

    assert [row["seq"] for row in admitted.tables["round"].to_pylist()] == [201, 202]
    assert admitted.refused == 2
    (loss,) = losses(admitted)
    assert (loss["reason"], loss["count"], loss["first_seq"]) == ("clock", 2, 200)
    assert admitted.refusals == {"clock": 2}


def test_a_request_may_be_older_than_a_round():
    request = Traffic().requests_ended[0] | {"admitted_at": NOW - 10 * DAY}

    admitted = admit(message(request=stream(table("request", [request]))), NOW)

    assert admitted.refused == 0


def test_a_boot_may_have_started_long_ago():
    old = Traffic().boot_row() | {"started_at": NOW - 400 * DAY}

    admitted = admit(message(boot=stream(table("boot", [old]))), NOW)

    assert admitted.refused == 0


def test_a_sidecar_s_own_losses_pass_beside_those_of_the_service():
    own = {
        "replica": "r0", "boot": "b0", "lost_at": NOW, "table": "ring", "reason": "ring_full",
        "first_seq": 101, "count": 7, "detail": "",
    }  # fmt: skip
    late = rounds(started_at=NOW - 9 * DAY)

    admitted = admit(message(round=stream(late), loss=stream(table("loss", [own]))), NOW)

    assert sorted(loss["reason"] for loss in losses(admitted)) == ["clock", "ring_full"]


def test_the_ledger_counts_what_will_be_stored():
    late = pa.concat_tables([rounds(), rounds(started_at=NOW - 9 * DAY, seq=9)])

    row = admit(message(round=stream(late)), NOW).ledger(NOW)

    assert (row["rounds"], row["losses"], row["number"]) == (1, 1, 4)
    assert (row["first_seq"], row["next_seq"]) == (100, 140)


def test_an_unknown_value_within_an_array_refuses_the_table_since_the_store_would_make_it_0():
    part = Traffic().batches()[0]["request_part"].to_pylist()[0] | {"k": [1, None]}

    admitted = admit(message(request_part=stream(table("request_part", [part]))), NOW)

    assert losses(admitted)[0]["detail"] == "column k has unknown values"


def test_a_table_that_the_store_cannot_read_becomes_a_loss_of_its_rows():
    admitted = admit(Traffic().messages()[0], NOW)
    rows = admitted.tables["round"]

    admitted.refuse_table("round", "cannot parse", NOW)

    assert set(admitted.tables) == {"boot", "request", "request_part"}
    (loss,) = losses(admitted)
    assert (loss["table"], loss["count"]) == ("round", rows.num_rows)
    assert loss["first_seq"] == min(rows.column("seq").to_pylist())


def test_batches_of_the_version_before_are_kept_whole():
    stored = Path(__file__).parents[1] / "data" / "versions"
    streams = {
        name: (stored / f"batch-{name}.arrow").read_bytes()
        for name in ("boot", "round", "request_part", "request")
    }
    batch = message(**streams)
    batch.source.boot = "00000000000000aa"

    admitted = admit(batch, 1_790_000_002_000_000_000)

    assert (admitted.refused, admitted.unknown_columns) == (0, 0)
    for name, stream_ in streams.items():
        before, now = pa.ipc.open_stream(stream_).read_all(), admitted.tables[name]
        assert now.select(before.column_names).to_pylist() == before.to_pylist()
        added = set(now.column_names) - set(before.column_names)
        assert added or name == "request"
        assert all(
            not any(now.column(column).to_pylist()) for column in added
        )  # NULL, or an empty array
