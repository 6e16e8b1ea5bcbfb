"""Every panel's query runs on a real embedded store and shows what the traffic did."""

from __future__ import annotations

import pytest
import stored_traffic as traffic

from specscope_dashboards.rendering import rendered

PANELS = {
    f"{name}: {panel['title']}": panel
    for name, dashboard in rendered().items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
}
VARIABLES = {
    f"{name}: {variable['name']}": variable["query"]
    for name, dashboard in rendered().items()
    for variable in dashboard["templating"]["list"]
    if variable["type"] == "query"
}
POOLED = {"pays: Verdicts"}
"""Panels whose rows pool the replicas of an epoch: the choice of a replica cannot apply."""
TIMES = ("DateTime", "Date")
TEXTS = ("String", "LowCardinality")


SERIES = [panel for panel in PANELS.values() if panel["type"] == "timeseries"]


def sql_of(title, dashboard="pays"):
    [target] = PANELS[f"{dashboard}: {title}"]["targets"]
    return target["rawSql"]


def text(type_):
    return type_.startswith(TEXTS) or "String" in type_


@pytest.fixture(params=PANELS.values(), ids=PANELS.keys())
def panel(request):
    return request.param


def test_every_panel_shows_something_of_known_traffic(screen, panel):
    [target] = panel["targets"]

    rows = screen.show(target["rawSql"])

    assert rows


def test_every_panel_is_empty_and_not_broken_on_an_empty_store(blank, panel):
    [target] = panel["targets"]

    assert blank.show(target["rawSql"]) == []


@pytest.mark.parametrize("panel", SERIES, ids=lambda panel: panel["title"])
def test_every_panel_of_series_has_a_time_that_rises_and_a_number(screen, panel):
    [target] = panel["targets"]

    columns = screen.schema(target["rawSql"])
    rows = screen.show(target["rawSql"])

    times = [name for name, type_ in columns if type_.startswith(TIMES)]
    numbers = [n for n, t in columns if n not in times and not text(t)]
    assert target["format"] == 0
    assert len(times) == 1
    assert numbers
    moments = [row[times[0]] for row in rows]
    assert moments == sorted(moments)


def test_every_column_that_a_panel_speaks_of_is_one_that_its_query_returns(screen, panel):
    [target] = panel["targets"]
    columns = {name for name, _ in screen.schema(target["rawSql"])}
    spoken = {
        override["matcher"]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byName"
    }

    made = set()
    for step in panel.get("transformations") or []:
        options = step["options"]
        match step["id"]:
            case "groupingToMatrix":
                spoken |= set(options.values())
                made.add(f"{options['rowField']}\\{options['columnField']}")
            case "filterFieldsByName":
                spoken |= set(options["include"]["names"])
            case "organize":
                spoken |= set(options["indexByName"])
    if panel["type"] == "barchart":
        assert panel["options"]["xField"] in (made or columns)
    label = (panel["fieldConfig"]["defaults"].get("displayName") or "").split("labels.")
    spoken |= {part.split("}")[0] for part in label[1:]}

    assert spoken <= columns


@pytest.mark.parametrize("query", VARIABLES.values(), ids=VARIABLES.keys())
def test_every_variable_offers_what_ran(screen, query):
    offered = [next(iter(row.values())) for row in screen.show(query)]

    assert offered in ([traffic.REPLICA], sorted(traffic.ACCEPTED))


def test_a_class_that_is_chosen_is_the_only_one_shown(screen):
    for title in ("Tokens per round", "Acceptance by position", "Context", "Latency of requests"):
        rows = screen.show(sql_of(title), **{"class": ["sql"]})

        assert {row["class"] for row in rows} == {"sql"}


def test_a_choice_with_a_quote_in_it_is_a_value_and_not_sql(screen):
    assert screen.show(sql_of("Tokens per round"), **{"class": ["it's", "') OR 1=1 --"]}) == []


@pytest.mark.parametrize("title", sorted(PANELS.keys() - POOLED))
def test_a_replica_that_does_not_exist_shows_nothing_anywhere(screen, title):
    [target] = PANELS[title]["targets"]
    assert "$replica" in target["rawSql"]

    assert screen.show(target["rawSql"], replica=["nobody"]) == []


@pytest.mark.parametrize("title", sorted(POOLED))
def test_a_panel_that_pools_replicas_says_so_and_ignores_the_choice_of_one(screen, title):
    [target] = PANELS[title]["targets"]

    chosen = screen.show(target["rawSql"], replica=["nobody"])

    assert chosen == screen.show(target["rawSql"])
    assert "choice of a replica" in PANELS[title]["description"]


def test_the_verdicts_are_on_the_traffic_that_ran(screen):
    [verdict] = screen.show(sql_of("Verdicts"))  # blocks switch all classes together

    assert (verdict["epoch"], verdict["label"]) == (traffic.EPOCH, "mixed")
    assert verdict["pairs"] <= traffic.MINUTES
    assert verdict["confidence"] != "high"  # four pairs decide nothing


def test_tokens_per_round_stand_against_the_break_even_of_the_same_minute(screen):
    rows = screen.show(sql_of("Tokens per round against break-even"))

    yielded = sum(accepted + 1 for accepted in traffic.ACCEPTED.values()) / 2
    needed = traffic.WALL[traffic.K] / traffic.WALL[0]
    assert len(rows) == traffic.MINUTES
    for row in rows:
        assert row["tokens_per_round"] == pytest.approx(yielded)
        assert row["needed"] == pytest.approx(needed)


def test_acceptance_falls_where_the_traffic_says(screen):
    rows = screen.show(sql_of("Acceptance by position"))

    survival = {(row["class"], row["position"]): row["survival"] for row in rows}
    assert survival == {
        **{("sql", position): 1.0 for position in (1, 2, 3, 4)},
        ("prose", 1): 1.0,
        ("prose", 2): 0.0,
    }


def test_parts_of_a_round_are_weighed_over_all_rounds_and_add_up(screen):
    rows = screen.show(sql_of("Where a round's time goes"))

    mean = {
        name: (traffic.PARTS_K0[name] + traffic.PARTS_K4[name]) / 2 / 1000
        for name in ("verify_us", "sample_us", "idle_us")
    }
    for row in rows:
        for name, value in mean.items():
            assert row[name.removesuffix("_us")] == pytest.approx(value)
        assert row["draft"] == pytest.approx(traffic.PARTS_K4["draft_us"] / 2 / 1000)
        assert row["other"] == pytest.approx(0, abs=1e-9)


def test_each_arm_has_its_own_throughput(screen):
    rows = {row["arm"]: row for row in screen.show(sql_of("Throughput of each arm"))}

    tokens = sum(accepted + 1 for accepted in traffic.ACCEPTED.values())
    assert rows["k0"]["tokens_per_second"] == pytest.approx(2 / traffic.WALL[0] * 1e6)
    assert rows["k4"]["tokens_per_second"] == pytest.approx(tokens / traffic.WALL[4] * 1e6)
    assert {row["blocks"] for row in rows.values()} == {traffic.MINUTES}


def test_what_was_lost_is_counted_by_its_reason(screen):
    [by_replica] = screen.show(sql_of("Records lost, by replica", "pipeline"))
    [by_minute] = screen.show(sql_of("Records lost", "pipeline"))

    assert (by_replica["reason"], by_replica["count"]) == ("ring_full", traffic.LOST)
    assert (by_minute["reason"], by_minute["records"]) == ("ring_full", traffic.LOST)


def test_a_device_field_is_a_value_on_one_dashboard_and_a_reason_on_the_other(screen):
    values = screen.show(sql_of("Memory busy, as the device says"))
    reasons = screen.show(sql_of("Device fields without a value", "pipeline"))

    assert {row["value"] for row in values} == {0.5}
    assert {(row["field"], row["reason"]) for row in reasons} == {
        ("tensor_active", "no permission")
    }
