"""Whatever rollups a store holds, a report comes out: never a crash, never a NaN in it."""

import dataclasses
import html
import io
import json
import math
import re
import time
from random import Random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reports import a_loss, a_report, a_segment
from rich.console import Console

from specscope.evaluate.experiment.segments import load_bucket
from specscope.evidence.read import read
from specscope.gate.recommend import recommendation
from specscope.report.collect import collect, unlabelled
from specscope.report.render import to_html, to_json, write
from specscope.report.terminal import show
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.rollups import ROLLUPS
from specscope.store.tables import RECORDS
from specscope_agent.schemas import ARROW_TYPES
from specscope_hook.columns import columns, stored_name

LARGEST = {"u8": 255, "u16": 2**16 - 1, "u32": 2**32 - 1, "u64": 10**12, "i16": 999, "time": 0}
BEGAN = time.time_ns() - 3600 * 10**9  # older rows age out of the store at once
KEYS = {
    "epoch": ["e1", "e1", "e2", ""],
    "policy": [1, 1, 7, 0],
    "replica": ["a", "b"],
    "boot": ["x"],
    "pair": [1, 2, 3, 0],
    "arm": ["k0", "k0", "k2", "k4", "current", "current+x", "clean", "k0'", ""],
    "class": ["x", "y", "z"],
    "context_bucket": ["0-1k", "0-1k", "4-16k", "unknown"],
    "output_bucket": ["1-16", "unknown"],
    "classes": [["x"], ["x"], ["y"], ["x", "z"], []],
    "version": [BEGAN],
    "reason": ["length", "abort"],
}


def value_of(column, random):
    """Any value that a column can hold; the same length for arrays that go together."""
    if (name := stored_name(column.name)) in KEYS:
        return random.choice(KEYS[name])
    if column.nullable and random.random() < 0.3:
        return None
    if column.repeated:
        return [value_of(column._replace(type=column.base), random) for _ in range(2)]
    if column.base == "time":
        return BEGAN + random.randrange(10**6)
    if column.base in ("f32", "f64"):
        odd = (0.0, 1e-300, 1e30, math.inf, math.nan)
        return random.choice(odd) if random.random() < 0.3 else random.uniform(1, 1e6)
    if column.base in ("text", "label"):
        return random.choice(["", "odd", "a guided"])
    if column.base == "bool":
        return random.random() < 0.5
    return min(random.choice([0, 1, 3, 100, random.randrange(5000)]), LARGEST[column.base])


def rows_of(table, random, most):
    fields = columns(RECORDS[table])
    return [
        {stored_name(column.name): value_of(column, random) for column in fields}
        for _ in range(random.randrange(most + 1))
    ]


def arrow(table, rows):
    kinds = {
        stored_name(c.name): pa.list_(ARROW_TYPES[c.base]) if c.repeated else ARROW_TYPES[c.base]
        for c in columns(RECORDS[table])
    }
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


TABLES = {"block_time": 24, "block_part": 12, "boot": 2, "request": 12, "loss": 2, "batch": 2}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.open(f"chdb://{tmp_path_factory.mktemp('odd')}/store") as opened:
        migrate(opened)
        yield opened


def report_on(store, filled):
    for table in TABLES:
        store.command(f"TRUNCATE TABLE {table}")
        if filled.get(table):
            store.insert(table, arrow(table, filled[table]))
    return collect(store, title="odd")


def looked_at(report):
    """Every view of a report; JSON with no NaN, no Infinity, and no word of them."""
    text = io.StringIO()
    show(report, Console(file=text, width=80, no_color=True))
    plain = to_json(report)
    values = json.loads(plain, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    page = re.sub(r"<svg.*?</svg>", "", to_html(report), flags=re.DOTALL)
    for view in (page, text.getvalue()):
        assert not re.search(r"\b(nan|inf|infinity)\b", view, re.IGNORECASE)
    return values


@settings(max_examples=15, phases=[Phase.generate])  # an example takes a second: no shrinking
@given(st.integers(0, 10**9))
def test_any_rollups_give_a_report(store, seed):
    # From a seed: drawn value by value, so large an example would be empty most of the time.
    random = Random(seed)
    filled = {table: rows_of(table, random, most) for table, most in TABLES.items()}
    values = looked_at(report_on(store, filled))

    assert values["global_action"] in (
        "keep", "route_selectively", "remove_everywhere", "collect_baseline", "inconclusive",
        "no_data",
    )  # fmt: skip
    for segment in values["segments"]:
        assert segment["reasons"] or segment["flags"] or segment["arms"]
        assert segment["grade"] in ("measured", "none")
        undecided = segment["action"] in ("inconclusive", "collect_baseline", "not_comparable")
        if undecided:
            assert any(segment["name"] in need for need in values["still_needed"])


BLOCK = dict.fromkeys(
    (stored_name(c.name) for c in columns(ROLLUPS["block_time"]) if c.nullable), None
) | {
    "epoch": "e", "policy": 1, "replica": "r", "boot": "b", "classes": ["x"], "first_at": BEGAN,
    "last_at": BEGAN, "gap_bins": [], "gap_counts": [], "tpot_bins": [], "tpot_counts": [],
    "admitted_kinds": [], "admitted_counts": [],
    "n_q": 0, "n_kv": 0, "proposed": 0, "accepted": 0, "prefill_tokens": 0, "padded_tokens": 0,
    "requests": 4, "rounds": 100, "request_rounds": 400, "emitted": 400, "wall_us": 1e5,
    "version": BEGAN,
}  # fmt: skip


def a_block(pair, arm, **changes):
    return BLOCK | {"pair": pair, "arm": arm, "k": int(arm[1:])} | changes


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [a_block(1, "k0")],
        [a_block(1, "k4")],
        [a_block(1, "k0"), a_block(1, "k4", emitted=800)],
        [a_block(1, "k0"), a_block(2, "k4")],
        [a_block(1, "k0", wall_us=None), a_block(1, "k4")],
        [a_block(1, "k0", emitted=0), a_block(1, "k4")],
        [a_block(pair, arm) for pair in (1, 2, 3) for arm in ("k0", "k4")],
        [a_block(pair, arm, request_rounds=0) for pair in (1, 2) for arm in ("k0", "k4")],
        [a_block(pair, arm, requests=0) for pair in (1, 2) for arm in ("k0", "k4")],
        [a_block(pair, arm, wall_us=1e300) for pair in (1, 2) for arm in ("k0", "k4")],
    ],
)
def test_thin_evidence_says_what_is_still_needed(store, rows):
    values = looked_at(report_on(store, {"block_time": rows}))

    actions = {segment["action"] for segment in values["segments"]}
    whole = [r for r in rows if r["wall_us"] and r["emitted"]]
    assert bool(actions) == bool(whole)
    if not actions:
        assert values["global_action"] == "no_data"
    elif actions & {"inconclusive", "collect_baseline"}:
        assert values["still_needed"]


def test_acceptance_that_cannot_be_draws_no_curve(store):
    part = {stored_name(c.name): None for c in columns(ROLLUPS["block_part"])}
    part |= {name: BLOCK[name] for name in ("epoch", "policy", "replica", "boot", "version")}
    part |= {"class": "x", "context_bucket": "0-1k", "output_bucket": "1-16", "k": 4, "arm": "k4"}
    part |= {"request_rounds": 400, "proposed": 1600, "accepted": 400, "emitted": 800}
    part |= {"censored": 0, "requests": 4, "kinds": [""], "kind_rounds": [400]}
    part |= {"kind_emitted": [800], "kind_tested": [10], "kind_kept": [90]}
    part |= {"tested": [10], "kept": [90, 20]}  # more was kept than was tested
    pairs = (1, 2, 3)
    drafts = {"k0": 0, "k4": 1600}
    blocks = [a_block(p, arm, emitted=800, proposed=n) for p in pairs for arm, n in drafts.items()]

    values = looked_at(
        report_on(store, {"block_time": blocks, "block_part": [part | {"pair": p} for p in pairs]})
    )

    (segment,) = values["segments"]
    assert [arm["survival"] for arm in segment["arms"]] == [[], []]


@pytest.mark.parametrize(
    ("tokens", "draft", "verify", "speedup", "action", "flagged"),
    [(4.2, 0.50, 0.65, 3.652, "set_k", True), (1.4, 0.90, 1.20, 0.667, "disable", False)],
)
def test_times_that_cannot_be_are_computed_as_asked_and_never_called_measured(
    store, tokens, draft, verify, speedup, action, flagged
):
    rows = []
    for pair in range(1, 25):
        slow = 1 + 0.01 * (pair % 4)
        parts = {"requests": 1, "rounds": 1000, "request_rounds": 1000}
        target = {"verify_us": 1e6 * slow, "wall_us": 1e6 * slow, "emitted": 1000}
        ran = {
            "draft_us": 1e6 * draft * slow,
            "verify_us": 1e6 * verify * slow,
            "wall_us": 1e6 * (draft + verify) * slow,
            "proposed": 5000,
            "emitted": round(1000 * tokens),
            "accepted": round(1000 * tokens) - 1000,
        }
        rows += [a_block(pair, "k0", **parts, **target), a_block(pair, "k5", **parts, **ran)]

    (segment,) = looked_at(report_on(store, {"block_time": rows}))["segments"]

    assert segment["arms"][1]["speedup"] == pytest.approx(speedup, abs=6e-4)
    assert segment["action"] == action
    assert segment["grade"] == ("none" if flagged else "measured")
    assert [one["code"] for one in segment["flags"]] == ["INCONSISTENT_BASELINE"] * flagged


def a_request(number, arm, content, digest):
    plain = dict.fromkeys(stored_name(c.name) for c in columns(RECORDS["request"]))
    return plain | {
        "replica": "r", "boot": "b", "request": number, "seq": number, "class": "x",
        "admitted_at": BEGAN + number, "ended_at": BEGAN + number + 1, "policy": 1, "pair": 1,
        "last_pair": 1, "arm": arm, "prompt_tokens": 5, "output_tokens": 9, "temperature": 0.0,
        "top_p": 1.0, "guided": False, "reason": "length", "content": content, "digest": digest,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "action", "state"), [(0, "set_k", "equal"), (40, "engine_fault", "differs")]
)
def test_an_arm_that_changes_outputs_is_a_fault_in_report_and_gate(store, wrong, action, state):
    rows = [
        a_block(pair, arm, emitted=400 if arm == "k0" else 900, wall_us=1e5 + pair)
        | {"proposed": 0 if arm == "k0" else 1600, "accepted": 0 if arm == "k0" else 500}
        for pair in range(1, 25)
        for arm in ("k0", "k4")
    ]
    requests = []
    for content in range(1, 81):
        for copy, arm in enumerate(("k0", "k0", "k4")):
            digest = 7 if arm == "k4" and content <= wrong else 1000 + content
            requests.append(a_request(3 * content + copy, arm, content, digest))
    boot = dict.fromkeys(stored_name(c.name) for c in columns(RECORDS["boot"]))
    names = ("host", "engine", "engine_version", "hook_version", "target", "method", "role")
    sizes = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "rank")
    boot |= dict.fromkeys(names, "x") | dict.fromkeys((*sizes, "k_max"), 1)
    boot |= {"replica": "r", "boot": "b", "epoch": "e", "started_at": BEGAN, "gpu_uuids": []}

    filled = {"block_time": rows, "request": requests, "boot": [boot]}
    values = looked_at(report_on(store, filled))
    moves = recommendation(read(store), default_k=0, now=BEGAN).moves

    (segment,) = values["segments"]
    (output,) = values["outputs"]
    assert (segment["action"], values["outputs_state"]) == (action, state)
    assert (output["compared"], output["differing"]) == (80, wrong)
    assert (output["twins"], output["twins_differing"]) == (80, 0)
    assert any(move.changes for move in moves) == (action == "set_k")


def test_a_whole_block_row_is_what_the_record_says():
    # Loads of the report's names are those of the evaluator, and no column was forgotten above.
    assert set(BLOCK) | {"pair", "arm", "k"} == {
        stored_name(column.name) for column in columns(ROLLUPS["block_time"])
    }
    assert dataclasses.is_dataclass(ROLLUPS["block_time"])
    assert [load_bucket(n) for n in (1, 2, 4, 256, 257)] == ["1", "2-4", "2-4", "65-256", "257+"]


@pytest.mark.parametrize(
    ("emitted", "share"), [({"sql": 60, "unlabelled": 20}, ["25%"]), ({"sql": 60}, []), ({}, [])]
)
def test_traffic_without_a_class_is_said_with_its_share(emitted, share):
    rows = [{"class": name, "emitted": tokens} for name, tokens in emitted.items()]

    assert [note.split()[0] for note in unlabelled(rows)] == share


ODD_NAMES = (
    "$x$", "$\\frac{$", "😀 名前", "x" * 10_000, "'; DROP TABLE round; --", "{{ 7*7 }}",
    "a\x1b[31m", "a|b\nc", "a\x00b", "]]>",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_whatever_a_name_is_it_stays_a_name(name, tmp_path, recwarn):
    lost = a_segment(name, "disable", None, name=f"{name}, heavy", **a_loss())
    report = a_report(segments=[a_segment(name, name=f"{name}, light"), lost])
    text = io.StringIO()

    page = write(report, tmp_path).read_text()
    show(report, Console(file=text, width=80, no_color=True))

    assert not re.search(r"[\x00-\x08\x0b-\x1f]", page)
    assert "\x1b" not in text.getvalue()
    assert html.escape("".join(filter(str.isprintable, name)), quote=True) in page.replace(
        "&#34;", "&quot;"
    ).replace("&#39;", "&#x27;").replace("\n", "")
    assert json.loads((tmp_path / "report.json").read_text())["segments"][0]["label"] == name
    table = (tmp_path / "report.md").read_text().split("## Verdicts")[1].split("\n\n")[1]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()} == {8}
    assert not recwarn.list
