"""What the sides of a crossover ran, what requests got from them, and how clients asked."""

import dataclasses
import json

import pyarrow as pa
import pytest
from evaluate.reasons import numbers, rows
from gate.test_gate_commands import run, typed
from gate.test_gate_crossover import NOW, SWAP, SWAPPED, blocks, boot_of, stored

from specscope.cli import main
from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.outputs.copies import OutputCheck
from specscope.evaluate.outputs.states import DIFFERS
from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evaluate.verdict.verdict import Metric
from specscope.evidence.crossovers import Crossing, crossings
from specscope.evidence.differences import lossy
from specscope.gate.show import crossover_lines
from specscope.gate.swap import Swap, check_sides, crossover_policy
from specscope.store.connection import Store
from specscope_agent.schemas import schema

TABLE = [{"class": "sql", "k": 4}, {"class": None, "k": 1}]


def judged(made, boots=None, policy=None, closed_loop=False):
    """The one verdict on blocks of a crossover. policy: what its table says."""
    body = crossover_policy([], SWAP, now=NOW, default_k=4) | (policy or {})
    boots = boots or [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k0", "k4")]
    (found,) = judge_crossovers(crossings(made, {1: body}, boots), closed_loop=closed_loop)
    return found.verdict


def drafting(made, k, each=None):
    """The blocks, those that draft with `k` at most, and `each` a round."""
    return [
        dataclasses.replace(
            b, k=k, proposed=int((each or k) * b.request_rounds),
            accepted=min(b.accepted, int((each or k) * b.request_rounds)),
        ) if b.k else b
        for b in made
    ]  # fmt: skip


# --- what a side ran -----------------------------------------------------------------------


def names(verdict):
    return [arm.arm for arm in verdict.arms]


def test_a_side_that_a_policy_keeps_short_has_the_length_that_it_drafted():
    verdict = judged(drafting(blocks(SWAPPED, 24), 2), policy={"default_k": 2})

    assert names(verdict) == ["clean", "k2"]  # its Boot could do 4
    assert (verdict.action, verdict.k) == ("keep", 2)


def test_a_side_under_the_gate_s_table_is_that_table_and_no_length():
    verdict = judged(drafting(blocks(SWAPPED, 24), 4, each=2.5), policy={"table": TABLE})

    assert names(verdict) == ["clean", "current"]
    assert (verdict.action, verdict.k, verdict.grade) == ("keep", None, "measured")


def test_an_engine_that_does_not_follow_the_table_keeps_its_own_length():
    verdict = judged(blocks(SWAPPED, 24), policy={"table": TABLE})

    assert names(verdict) == ["clean", "k4"]


def test_lookups_that_find_nothing_to_propose_are_no_table():
    verdict = judged(drafting(blocks(SWAPPED, 24), 4, each=1.6))

    assert names(verdict) == ["clean", "k4"]


def test_a_side_with_a_schedule_of_its_own_is_no_fixed_length(tmp_path, capsys):
    boots = [
        boot_of(side, arm) | {"k_schedule": "[[1, 4, 4], [5, 64, 2]]" if arm == "k4" else None}
        for side in (0, 1)
        for arm in ("clean", "k4")
    ]

    verdict = judged(blocks(SWAPPED, 24), boots)

    assert names(verdict) == ["clean", "schedule"]
    assert (verdict.action, verdict.k) == ("keep", None)

    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        store.command("ALTER TABLE boot UPDATE k_schedule = '[[1, 8, 4]]' WHERE method != 'none' "
                      "SETTINGS mutations_sync = 1")  # fmt: skip
    _, out, _ = run(capsys, "recommend", "--store", where)
    assert "start with the table of schedule" in out


@pytest.mark.parametrize("better", ["current", "schedule"])
def test_of_two_tables_the_one_that_won_is_named(better):
    worse = "schedule" if better == "current" else "current"
    speed = {"clean": 1.0, worse: 1.3, better: 1.6}
    deploys = [("clean", worse), (worse, "clean"), ("clean", better), (better, "clean")]
    made = [
        dataclasses.replace(
            b, arm=arm, policy=number, boot=f"{b.boot} {number}",
            emitted=round(speed[arm] * b.emitted),
        )
        for number, sides in enumerate(deploys, start=1)
        for b in blocks([("clean", "clean")], 40)
        for arm in [sides[b.replica != SWAP.left[0]]]
    ]  # fmt: skip
    ran = {(b.replica, b.boot): b.arm for b in made}
    sides = {SWAP.left[0]: "left", SWAP.right[0]: "right"}

    (found,) = judge_crossovers([Crossing((1, 2, 3, 4), sides, tuple(made), ran)])

    assert f"start with the table of {better}" in crossover_lines(found.verdict)[0]


def test_two_drafts_on_one_side_are_two_configurations_of_one_name():
    boots = [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k4")]
    boots.append(boots[-1] | {"boot": "again", "draft": "another"})
    made = blocks(SWAPPED, 24)
    later = [b for b in blocks(SWAPPED[:1], 24, seed=2) if b.k]
    again = [dataclasses.replace(b, boot="again", pair=b.pair + 1000) for b in later]

    verdict = judged([*made, *again], boots)

    assert dict(verdict.left_out)[LeftOut.AMBIGUOUS] == 48
    assert numbers(verdict, "ambiguous", "k4") == {
        "ways": ("draft_model another", "draft_model tiny")
    }


# --- what may differ -------------------------------------------------------------------------


VALUES = {
    "version": ("engine_version", "0.32", "0.33"),
    "drafter": ("draft", "tiny", "eagle"),
    "placement": ("tensor_parallel", 1, 2),
    "hardware": ("gpu_type", "H100", "L40S"),
    "configuration.graphs": ("configuration", '{"graphs": "FULL"}', '{"graphs": "NONE"}'),
    "configuration.speculative.rejection": (
        "configuration", '{"speculative": {"rejection": "strict"}}',
        '{"speculative": {"rejection": "lenient"}}',
    ),
}  # fmt: skip


def differing(part, arms=("k4", "k4 other")):
    """Boots and blocks of a crossover whose sides, clean and two k4, differ in a part. The deploys:
    each k4 against clean, each way round, and against the other one, each way round."""
    column, one, other = VALUES[part]
    deploys = [("clean", arms[0]), (arms[0], "clean"), ("clean", arms[1]), (arms[1], "clean"),
               arms, arms[::-1]]  # fmt: skip
    boots, made = {}, []
    for index, sides in enumerate(deploys, start=1):
        for block in blocks([tuple(arm.partition(" ")[0] for arm in sides)], 24, seed=index):
            side = int(block.replica[1:])
            name = f"{block.boot} {sides[side]} {index}"
            kind = sides[side].partition(" ")[0]
            value = other if sides[side].endswith("other") else one
            if kind == "clean":  # a target-only side is what the drafting one is beside it
                value = other if any(arm.endswith("other") for arm in sides) else one
            boots[name] = boot_of(side, kind) | {"boot": name, column: value}
            faster = 1.1 if sides[side].endswith("other") else 1.0
            made.append(
                dataclasses.replace(
                    block, policy=index, boot=name, pair=block.pair + 1000 * index,
                    emitted=round(faster * block.emitted),
                    accepted=round(faster * block.emitted) - block.request_rounds,
                )
            )  # fmt: skip
    return made, list(boots.values())


def judged_parts(made, boots, differs):
    body = crossover_policy([], dataclasses.replace(SWAP, differs=differs), now=NOW, default_k=4)
    found = judge_crossovers(crossings(made, dict.fromkeys(range(1, 7), body), boots))
    return [one.verdict for one in found]


@pytest.mark.parametrize("part", VALUES)
def test_a_difference_that_was_declared_is_compared_beside_target_only(part):
    made, boots = differing(part)

    (verdict,) = judged_parts(made, boots, (part,))

    other = VALUES[part][2]
    drafting = [name for name in names(verdict) if name.startswith("k4 ")]
    assert len(drafting) == 2
    assert all(f"{part}=" in name for name in drafting)
    contrast = next(e for e in verdict.speedups if {e.arm, e.baseline} == set(drafting))
    faster = contrast.value if str(other).strip("{}") in contrast.arm else 1 / contrast.value
    if part in ("version", "drafter", "hardware"):
        assert other in contrast.arm or other in contrast.baseline
        assert faster == pytest.approx(1.1, rel=0.02)
    assert (verdict.action, verdict.grade) == ("keep", "measured")
    assert verdict.best[0] in drafting


@pytest.mark.parametrize("part", VALUES)
def test_a_difference_that_was_not_declared_is_refused_by_name(part):
    made, boots = differing(part)

    verdicts = judged_parts(made, boots, ())

    refused = [one for one in verdicts if one.action == "not_comparable"]
    assert refused
    assert all(len(numbers(one, "undeclared", part)["ways"]) == 2 for one in refused)
    assert all(not one.speedups for one in refused)
    assert f"--differs {part}" in "\n".join(crossover_lines(refused[0]))


def test_a_lossy_rule_is_labelled_and_its_outputs_differ_by_declaration():
    part = "configuration.speculative.rejection"
    made, boots = differing(part)

    (verdict,) = judged_parts(made, boots, (part,))

    labelled = [name for name in names(verdict) if name.endswith(",lossy")]
    assert labelled == ['k4 configuration.speculative.rejection="lenient",lossy']
    assert numbers(verdict, "lossy", labelled[0]) == {"rule": "rejection=lenient"}
    changed = OutputCheck(
        epoch=verdict.epoch, class_="sql", arm=labelled[0], state=DIFFERS, compared=50,
        differing=20, twins=50, twins_differing=0, excess=0.4, low=0.3, high=0.5, p_value=0.0,
    )  # fmt: skip
    body = crossover_policy([], dataclasses.replace(SWAP, differs=(part,)), now=NOW, default_k=4)
    (crossing,) = crossings(made, dict.fromkeys(range(1, 7), body), boots)
    for arm, flags in ((labelled[0], ()), ('k4 configuration.speculative.rejection="strict"', ())):
        judged = judge_crossovers(
            [dataclasses.replace(crossing, outputs=(dataclasses.replace(changed, arm=arm),))]
        )
        assert (judged[0].verdict.flags == flags) or arm in judged[0].verdict.best


@pytest.mark.parametrize(
    ("configuration", "rule"),
    [
        ({"speculative": {"rejection_sample_method": "fly"}}, "rejection_sample_method=fly"),
        ({"speculative": {"rejection_sample_method": "block"}}, ""),
        ({"x": {"speculative_accept_threshold_single": 0.9}},
         "speculative_accept_threshold_single=0.9"),
        ({"x": {"speculative_accept_threshold_acc": 1.0}}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_lossy_rules_of_engines_are_known_by_name(configuration, rule):
    boot = boot_of(0, "k4") | {"configuration": json.dumps(configuration)}

    assert lossy(boot) == rule
    assert lossy(boot | {"method": "none"}) == ""


def test_drafters_that_never_met_target_only_decide_nothing():
    made, boots = differing("drafter")
    only = [block for block in made if block.policy > 4]

    (verdict,) = judged_parts(only, boots, ("drafter",))

    assert verdict.action == "collect_baseline"


def test_two_calibrations_of_the_same_sides_are_one_crossover_however_they_are_called():
    first = blocks(SWAPPED[:1], 24)
    second = [dataclasses.replace(b, policy=3) for b in blocks(SWAPPED[1:], 24, seed=1)]
    other = [dataclasses.replace(b, policy=5) for b in blocks(SWAPPED[1:], 24, seed=2)]
    bodies = {
        number: crossover_policy([], Swap(*sides, 120), now=NOW, default_k=4)
        for number, sides in (
            (1, [("r0",), ("r1",)]), (3, [("r1",), ("r0",)]), (5, [("r0", "r9"), ("r1",)]),
        )
    }  # fmt: skip
    boots = [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k4")]

    found = crossings([*first, *second, *other], bodies, boots)
    both, alone = judge_crossovers(found)

    assert [one.policies for one in found] == [(1, 3), (5,)]
    assert (both.verdict.action, both.verdict.grade, both.verdict.pairs) == ("keep", "measured", 48)
    assert both.joint.hardware[0].value == pytest.approx(1.1, rel=0.02)
    assert alone.verdict.flags == ("NOT_SWAPPED",)


def test_a_boot_that_two_policies_kept_differently_is_named_in_each_by_what_it_ran():
    first = drafting(blocks(SWAPPED, 24), 2)
    second = [dataclasses.replace(b, policy=3) for b in blocks(SWAPPED, 24, seed=1)]
    bodies = dict.fromkeys((1, 3), crossover_policy([], SWAP, now=NOW, default_k=4))
    boots = [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k4")]

    (found,) = crossings([*first, *second], bodies, boots)

    assert {(b.policy, b.arm) for b in found.blocks} == {
        (1, "clean"), (1, "k2"), (3, "clean"), (3, "k4"),
    }  # fmt: skip
    assert set(found.ran.values()) == {"clean"}  # whose outputs are whose is not known by boot


# --- what requests got ---------------------------------------------------------------------


def put_requests(store, differing, contents=200):
    """Requests of one content each on both sides and both deploys; of `k4` some differ."""
    rows = []
    for number in range(contents):
        for place, (side, arm) in enumerate(
            (side, arm) for arms in SWAPPED for side, arm in enumerate(arms)
        ):
            boot = boot_of(side, arm)
            wrong = arm == "k4" and number < differing
            rows.append({
                "replica": boot["replica"], "boot": boot["boot"], "request": 10 * number + place,
                "seq": 10 * number + place, "class": "sql", "admitted_at": NOW, "ended_at": NOW + 1,
                "policy": 1, "pair": number, "last_pair": number + place % 2, "arm": "current",
                "prompt_tokens": 5, "output_tokens": 5, "temperature": 0.0, "top_p": 1.0,
                "guided": False, "reason": "length", "content": number + 1,
                "digest": 8 if wrong else 7,
            })  # fmt: skip
    store.insert("request", typed(store, "request", rows))


@pytest.mark.parametrize(
    ("differing", "state", "action", "confidence"),
    [(0, "equal", "keep", "high"), (20, "differs", "engine_fault", "none")],
)
def test_a_side_that_changes_outputs_has_not_won(
    tmp_path, capsys, differing, state, action, confidence
):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        put_requests(store, differing)

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")
    _, text, _ = run(capsys, "recommend", "--store", where)
    main(["report", "--store", where, "--out", str(tmp_path / "report"), "--json"])
    report = json.loads(capsys.readouterr().out)

    (found,) = json.loads(out)["crossovers"]
    assert (found["action"], found["confidence"]) == (action, confidence)
    assert ("engine fault" in text) == bool(differing)
    counts = [(one["arm"], one["numbers"]["differing"]) for one in rows(found, "outputs")]
    assert counts == ([("k4", differing)] if differing else [])
    assert report["outputs_state"] == state
    assert [(row["arm"], row["compared"]) for row in report["outputs"]] == [("k4", 200)]
    assert report["segments"][0]["action"] == action


def test_outputs_that_differ_without_copies_to_tell_why_hold_a_change_back(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        put_requests(store, 3)
        store.command("DELETE FROM request WHERE boot = 'b1clean'")

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")

    (found,) = json.loads(out)["crossovers"]
    assert (found["action"], found["grade"], found["confidence"]) == ("keep", "measured", "low")
    assert [one["arm"] for one in rows(found, "thin_outputs")] == ["k4"]


def test_counters_that_cannot_be_are_a_fault_of_the_engine():
    made = [
        dataclasses.replace(b, emitted=2 * b.emitted) if b.k else b for b in blocks(SWAPPED, 24)
    ]

    verdict = judged(made)

    assert (verdict.action, verdict.flags) == ("engine_fault", ("IMPOSSIBLE_COUNTS",))


# --- how clients asked ---------------------------------------------------------------------


def test_clients_that_wait_ask_the_faster_side_more_and_that_is_fair(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        store.command("ALTER TABLE block_time UPDATE requests = if(k > 0, 130, 100) WHERE 1 "
                      "SETTINGS mutations_sync = 1")  # fmt: skip

    _, open_, _ = run(capsys, "recommend", "--store", where, "--json")
    _, closed, _ = run(capsys, "recommend", "--store", where, "--closed-loop", "--json")

    (found,) = json.loads(open_)["crossovers"]
    assert found["action"] == "not_comparable"
    assert found["flags"] == ["SAMPLE_RATIO"]
    (found,) = json.loads(closed)["crossovers"]
    assert (found["action"], found["k"], found["load"]) == ("keep", 4, "5-16")  # eight at once
    assert found["metric"].startswith("output tokens per second")
    folder = str(tmp_path / "report")
    main(["report", "--store", where, "--out", folder, "--json"])
    assert json.loads(capsys.readouterr().out)["segments"][0]["action"] == "not_comparable"
    main(["report", "--store", where, "--out", folder, "--json", "--closed-loop"])
    (segment,) = json.loads(capsys.readouterr().out)["segments"]
    assert (segment["action"], segment["load"]) == ("keep", "5-16")


def test_a_closed_loop_is_judged_by_tokens_however_idle_the_engines_are():
    idle = [dataclasses.replace(b, wall_us=b.wall_us / 2) for b in blocks(SWAPPED, 24)]

    assert judged(idle).metric.startswith("mean over requests of time per output token")
    assert judged(idle, closed_loop=True).metric.startswith("output tokens per second")
    said = judged(idle, policy={"closed_loop": True})
    assert said.metric.startswith("output tokens per second")


def test_tokens_of_a_crossover_have_a_cost_beside_the_engine_without_speculation(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        store.command("ALTER TABLE boot UPDATE price_per_hour = 3.6 WHERE 1 "
                      "SETTINGS mutations_sync = 1")  # fmt: skip

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")
    _, text, _ = run(capsys, "recommend", "--store", where)

    (found,) = json.loads(out)["crossovers"]
    clean, fast = found["costs"]["clean"], found["costs"]["k4"]
    assert clean["difference"] is None
    assert fast["difference"] == pytest.approx(fast["per_million"] - clean["per_million"])
    assert clean["per_million"] / fast["per_million"] == pytest.approx(1.3, rel=0.02)
    assert f"k4: {fast['per_million']:.3f} per million output tokens, " in text
    assert f"{fast['difference']:+.3f} against target-only" in text


# --- what the draft takes ------------------------------------------------------------------


def test_a_draft_s_share_of_the_cache_stands_beside_what_it_gains():
    boots = [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k4")]
    rooms = {"clean": 10_000, "k4": 8_000}
    for boot in boots:
        boot |= {"cache_blocks": rooms["clean" if boot["method"] == "none" else "k4"]}
        boot |= {"block_size": 16}

    verdict = judged(blocks(SWAPPED, 24), boots)

    (cache,) = [one for one in verdict.tradeoffs if one.metric is Metric.CACHE]
    assert (cache.arm, cache.baseline) == ("k4", "clean")
    assert (cache.before, cache.after, cache.ratio) == (160_000, 128_000, 1.25)
    assert cache.worsens
    assert verdict.action == "keep"
    (said,) = [r for r in verdict.reasons if r.code == "worsens" and r["metric"] == Metric.CACHE]
    assert (said["before"], said["after"]) == (160_000, 128_000)


def test_boots_that_disagree_about_their_cache_say_nothing_of_it():
    boots = [boot_of(side, arm) for side in (0, 1) for arm in ("clean", "k4")]
    for place, boot in enumerate(boots):
        boot |= {"cache_blocks": 10_000 + place, "block_size": 16}

    verdict = judged(blocks(SWAPPED, 24), boots)

    assert not [one for one in verdict.tradeoffs if one.metric is Metric.CACHE]


def test_calibrate_refuses_sides_that_differ_undeclared_and_asks_for_target_only(tmp_path, capsys):
    where = stored(tmp_path, SWAPPED)
    with Store.open(where) as store:
        before = len(store.rows("SELECT policy FROM policy FINAL"))
        rows_ = [boot_of(0, "k4"), boot_of(1, "k4") | {"engine_version": "0.33", "boot": "new"}]
        rows_ = [row | {"started_at": NOW + 10**9, "draft": f"d{i}"} for i, row in enumerate(rows_)]
        store.insert("boot", pa.Table.from_pylist(rows_, schema("boot")))
    words = ("calibrate", "--store", where, "--crossover", "r0", "r1", "--minutes", "60",
             "--block-s", "60", "--default-k", "4", "--approve")  # fmt: skip

    wrong = run(capsys, *words, "--differs", "colour")
    hidden = run(capsys, *words, "--differs", "drafter")

    assert (wrong[0], "colour" in wrong[2]) == (2, True)
    assert (hidden[0], "--differs version" in hidden[2]) == (2, True)
    with Store.open(where) as store:
        assert len(store.rows("SELECT policy FROM policy FINAL")) == before
        boots = store.rows("SELECT * FROM boot FINAL")
        (line,) = check_sides(dataclasses.replace(SWAP, differs=("drafter", "version")), boots)
    assert "target-only" in line
