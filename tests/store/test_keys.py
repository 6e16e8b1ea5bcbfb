"""Keys keep apart what is apart: a request id that comes again, losses of several batches."""

from __future__ import annotations

from store.traffic import Traffic, table

SECOND_NS = 10**9


def test_a_request_id_that_comes_ten_times_within_the_hour_is_ten_requests(store):
    ended = Traffic(seed=1).requests_ended[0]
    hour = ended["admitted_at"] - ended["admitted_at"] % (3600 * SECOND_NS)
    rows = []
    for i in range(10):
        one = ended | {"admitted_at": hour + i * SECOND_NS}
        rows += [
            one | {"seq": 1000 + 2 * i, "ended_at": None, "output_tokens": None, "reason": "none"},
            one | {"seq": 1001 + 2 * i, "ended_at": hour + (i + 1) * SECOND_NS},
        ]

    store.insert("request", table("request", rows))
    store.insert("request", table("request", rows))  # sent again

    (counted,) = store.rows(
        "SELECT count() AS all, countIf(isNotNull(ended_at)) AS ended FROM request FINAL"
    )
    assert counted == {"all": 10, "ended": 10}


def test_losses_of_batches_without_records_do_not_replace_each_other(store):
    losses = [
        {
            "replica": "r", "boot": "b", "lost_at": 1 + number, "table": "device",
            "reason": "spool_full", "first_seq": 7, "count": 3, "number": number, "detail": "",
        }
        for number in (4, 5, 6)
    ]  # fmt: skip

    store.insert("loss", table("loss", losses))
    store.insert("loss", table("loss", losses))

    (counted,) = store.rows("SELECT count() AS n, sum(count) AS lost FROM loss FINAL")
    assert counted == {"n": 3, "lost": 9}
