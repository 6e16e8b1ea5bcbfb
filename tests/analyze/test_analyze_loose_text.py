"""Figures that stand in no ruled table: what each text decides, and by how much."""

import pytest
from loose_texts import BLOCKS_AND_LEGENDS
from table_campaign import answer_of
from tables_of_truth import DECIDED

CASES = {
    "names with figures, one a line": (
        "Results:\n\nbaseline_tok_s = 31.2\nspec_tok_s = 44.9\nspec_acceptance_rate = 0.62\n",
        {"keep"},
        [1.439],
    ),
    "times a token with their unit": (
        "baseline_tpot_ms: 12.5 ms\nspec_tpot_ms: 15.0 ms\n",
        {"disable"},
        [0.833],
    ),
    "names with figures, both speculate": ("mtp1_tok_s = 31.2\nmtp3_tok_s = 44.9\n", set(), []),
    "parts of a round are no arms": (
        "baseline_step_ms = 12\ndraft_ms = 3\nverify_ms = 14\n",
        set(),
        [],
    ),
    "columns under heads": (
        "              baseline            eagle3\n"
        "conc     tok/s   TPOT      tok/s   TPOT\n"
        "1        100     10.0      150     6.7\n"
        "4        390     10.3      620     6.4\n",
        {"keep"},
        [1.5, 1.59],
    ),
    "columns under heads that both speculate": (
        "              eagle k=2           eagle k=5\n"
        "conc     tok/s   TPOT      tok/s   TPOT\n"
        "1        100     10.0      150     6.7\n"
        "4        390     10.3      620     6.4\n",
        set(),
        [],
    ),
    "three runs in a sentence": (
        "On one GPU I measured MTP 53 tok/s, EAGLE 56, no speculation 30.5.\n",
        {"keep"},
        [1.738, 1.836],
    ),
    "a list whose baseline speculates": (
        "Result: MTP n=3 53 tok/s vs n=5 56, baseline (MTP n=1) 30.5.\n",
        set(),
        [],
    ),
    "a list of three engines": (
        "Result: vLLM EAGLE 53 tok/s, SGLang EAGLE 56, llama.cpp no spec 30.5.\n",
        set(),
        [],
    ),
    "a list with a rate between": (
        "Result: EAGLE 53 tok/s, MTP 56, no spec 30.5, acceptance 0.62.\n",
        set(),
        [],
    ),
    "two classes in a sentence": (
        "For code 41 tok/s with the draft vs 30 without, for prose 24 with vs 31 without.\n",
        {"keep", "disable"},
        [1.367, 0.774],
    ),
    "two pairs of no class": (
        "41 tok/s with the draft vs 30 without, then 25 with vs 31 without.\n",
        set(),
        [],
    ),
    "steps whose change is the arm's": (
        "27B-MTP vs Base 27B (chat)\n"
        "- Prompt: 300 → 250 t/s (-16.7%)\n"
        "- Generation: 7.6 → 16.2 t/s (+113%)\n"
        "- Long generation: 8.0 → 16.0 t/s (+100%)\n",
        {"keep"},
        [2.132, 2.0],
    ),
    "steps against their change": (
        "27B-MTP vs Base 27B (chat)\n"
        "- Generation: 16.2 → 7.6 t/s (+113%)\n"
        "- Long generation: 16.0 → 8.0 t/s (+100%)\n",
        set(),
        [],
    ),
    "steps of a base that drafts": (
        "MTP fused vs base (all with EAGLE)\n"
        "- Generation: 7.6 → 16.2 t/s (+113%)\n"
        "- Long generation: 8.0 → 16.0 t/s (+100%)\n",
        set(),
        [],
    ),
    "steps of a build that changed too": (
        "MTP fused vs base\n"
        "- Generation: 7.6 → 16.2 t/s (+113%)\n"
        "- Long generation: 8.0 → 16.0 t/s (+100%)\n",
        set(),
        [],
    ),
    "blocks below a model's name": (
        "7b:\nfirst token: 0.04 s\ndecode speed: 69.8 token/s\n\n"
        "spec 7b:\nfirst token: 0.02 s\ndecode speed: 56.8 token/s\n",
        {"disable"},
        [0.814],
    ),
    "blocks of two models": (
        "70b:\ndecode speed: 19.8 token/s\n\nspec 7b:\ndecode speed: 61.8 token/s\n",
        set(),
        [],
    ),
    "a range before the unit": (
        "without draft: 30 (28-32) tok/s\nwith draft: 41 (39-43) tok/s\n",
        {"keep"},
        [1.367],
    ),
    "a column that names drafters": (
        "| id | parallel | draft | t/s |\n|---|---|---|---|\n"
        "| A | 1 | none | 43 |\n| B | 1 | 1.5B Q8 | 17.5 |\n",
        {"disable"},
        [0.407],
    ),
    "no drafter beside a head of the model's own": (
        "| config | draft model | tok/s |\n|---|---|---|\n"
        "| A (native MTP) | none | 45 |\n| B | Qwen3-0.6B | 60 |\n",
        set(),
        [],
    ),
    "no drafter and yet an acceptance": (
        "| config | draft model | tok/s | accept |\n|---|---|---|---|\n"
        "| A | none | 30 | 60% |\n| B | Qwen3-0.6B | 45 | 70% |\n",
        set(),
        [],
    ),
    "serial decode beside a drafter": (
        "| prompt | DFlash | serial | accepted of 5 drafted |\n|---|---|---|---|\n"
        "| code | 58 tok/s | 35 tok/s | 4.1 |\n| verse | 26 tok/s | 32 tok/s | 1.5 |\n",
        {"keep", "disable"},
        [1.657, 0.8125],
    ),
    "serial beside parallel drafting": (
        "| prompt | serial | parallel drafting |\n|---|---|---|\n"
        "| a | 30 tok/s | 45 tok/s |\n| b | 31 tok/s | 44 tok/s |\n",
        set(),
        [],
    ),
    "time of kernels": (
        "| arm | kernel ms/token |\n|---|---|\n| no spec | 12 |\n| MTP k=2 | 8 |\n",
        set(),
        [],
    ),
    "peaks alone": (
        "| config | peak tok/s |\n|---|---|\n| no spec | 30 |\n| MTP | 45 |\n",
        {"keep"},
        [1.5],
    ),
    "a peak against a mean": (
        "| config | tok/s | peak tok/s |\n|---|---|---|\n"
        "| no spec | 30 | 40 |\n| MTP | 25 | 60 |\n",
        {"disable"},
        [0.833],
    ),
    "prefill beside decode": (
        "| config | PP (t/s) | TG (t/s) |\n|---|---|---|\n"
        "| no spec | 439 | 30 |\n| MTP | 300 | 45 |\n",
        {"keep"},
        [1.5],
    ),
}
ROWS = {
    "arms by name": (
        '{"baseline": {"tok_s": 31.2}, "mtp_k3": {"tok_s": 44, "acceptance_rate": 0.7}}',
        {"keep"},
    ),
    "an array of rows": (
        '[{"config": "no_spec", "tok_s": 31.2}, {"config": "eagle3", "tok_s": 20.1}]',
        {"disable"},
    ),
    "a baseline with a k": (
        '[{"config": "baseline", "k": 3, "tok_s": 31.2}, {"config": "new", "k": 3, "tok_s": 40.1}]',
        set(),
    ),
    "no figures": ('{"name": "x", "scripts": {"mtp": "a", "baseline": "b"}}', set()),
}
ALL = CASES | BLOCKS_AND_LEGENDS


def decided(answer):
    return {verdict["action"] for verdict in answer["verdicts"]} & set(DECIDED)


@pytest.mark.parametrize(("text", "allowed", "speedups"), ALL.values(), ids=ALL)
def test_a_text_decides_what_its_figures_say(text, allowed, speedups):
    answer = answer_of(text, "note.md")

    assert decided(answer) == allowed
    comparable = [one["speedup"] for one in answer["comparisons"] if one["comparable"]]
    for speedup in speedups:
        assert any(abs(one - speedup) < 0.002 for one in comparable), comparable


@pytest.mark.parametrize(("text", "allowed"), ROWS.values(), ids=ROWS)
def test_rows_of_json_are_a_table(text, allowed):
    assert decided(answer_of(text, "result.json")) == allowed


def test_a_comparison_of_peaks_is_never_sure():
    rows = "".join(f"| {arm} | {speed} |\n" for arm, speed in
                   [("no spec", 30), ("no spec", 30.1), ("MTP", 45), ("MTP", 45.1)])  # fmt: skip

    answer = answer_of(f"| config | peak tok/s |\n|---|---|\n{rows}", "note.md")

    assert [verdict["confidence"] for verdict in answer["verdicts"]] == ["low"]


def test_a_corner_may_name_what_all_cells_measure():
    table = (
        "| accept length | tree draft | chain draft |\n|---|---|---|\n"
        "| t=0.0 | 2.14 | 1.69 |\n| t=1.0 | 1.71 | 1.50 |\n"
    )

    answer = answer_of(table, "note.md")

    lengths = {window["label"]: window["mean_length"] for window in answer["windows"]}
    assert lengths["tree draft, t=0.0"] == 2.14
    assert lengths["chain draft, t=1.0"] == 1.5


def test_counts_without_rounds_are_never_summed_since_they_may_be_cumulative():
    lines = "stats: proposed={}, accepted={}, acceptance_rate={:.2%}\n"
    text = "".join(lines.format(p, a, a / p) for p, a in ((32, 21), (64, 39), (96, 60)))

    answer = answer_of(text, "server.log")

    assert [window["proposed"] for window in answer["windows"]] == [32, 64, 96]
    assert answer["totals"] is None


def test_rounds_without_a_proposal_have_no_rate():
    answer = answer_of("x: cycles=1475 proposed=0 accepted_draft=0 accept_rate=0.00%\n", "a.log")

    assert [window["acceptance_rate"] for window in answer["windows"]] == [None]
    assert {finding["code"] for finding in answer["findings"]} == {"DRAFTER_NEVER_USED"}


def test_counts_without_rounds_are_read_if_their_rate_agrees():
    told = "targets=30 proposals=24 accepted=20 acceptance_rate={}\n"

    agreeing, other = (answer_of(told.format(rate), "probe.log") for rate in (0.833, 0.5))

    assert [window["accepted"] for window in agreeing["windows"]] == [20]
    assert agreeing["totals"]["accepted"] == 20
    assert other["windows"] == []
