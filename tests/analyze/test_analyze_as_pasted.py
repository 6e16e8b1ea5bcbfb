"""What is concluded from files that nobody prepared."""

import json

import pytest
from analyze_cases import actions, codes

from specscope.analyze.collect import analyze
from specscope.errors import InputError


def judge(tmp_path, text, name="pasted.md"):
    path = tmp_path / name
    path.write_text(text)
    return analyze([str(path)]).as_json()


def sglang(second, spec, tok_s):
    return (
        f"[2025-06-07 21:25:{second:02d} TP0] Decode batch. #running-req: 1, #token: 9322, "
        f"token usage: 0.00, {spec}gen throughput (token/s): {tok_s:.2f}, #queue-req: 0\n"
    )


def test_a_log_with_and_without_accept_lengths_holds_its_own_baseline(tmp_path):
    plain = "".join(sglang(n, "", 100.0) for n in range(4))
    spec = "".join(sglang(30 + n, "accept len: 1.50, ", 60.0) for n in range(4))

    found = judge(tmp_path, plain + spec, "both.log")

    assert actions(found) == ["disable"]
    assert found["comparisons"][0]["speedup"] == pytest.approx(0.6)
    assert found["totals"]["throughput_tok_s"] == pytest.approx(60)
    # 1.5 tokens at 60 tok/s are rounds of 25 ms.
    assert found["totals"]["round_ms"] == pytest.approx(25)


def test_a_log_without_speculation_alone_is_no_data(tmp_path):
    found = judge(tmp_path, "".join(sglang(n, "", 100.0) for n in range(4)), "off.log")

    assert actions(found) == ["no_data"]
    assert found["totals"]["throughput_tok_s"] == pytest.approx(100)


def test_quoted_rates_alone_say_what_each_draft_length_keeps(tmp_path):
    found = judge(tmp_path, "Per-position acceptance rate: 0.800, 0.500, 0.001\n")

    assert actions(found) == ["collect_baseline"]
    assert found["totals"]["mean_length"] == pytest.approx(2.301)
    assert "K_TOO_LONG" in codes(found)


ISSUE = """### Describe the bug

without eagle:
```
{plain}```
with eagle:
```
{spec}```
I expected more.

| Config | Decode tok/s | Draft acceptance |
|---|---:|---:|
| no speculation | 100.0 | — |
| `--spec-draft-n-max 3` | 80.0 | 34% |
| **`--spec-draft-n-max 1`** | **125.0** | 94% |
"""


def test_a_pasted_issue_is_read_block_by_block(tmp_path):
    plain = "".join(sglang(n, "", 100.0) for n in range(4))
    spec = "".join(sglang(30 + n, "accept len: 1.50, ", 60.0) for n in range(4))

    found = judge(tmp_path, ISSUE.format(plain=plain, spec=spec))

    by_arm = {c["arm"]: c["speedup"] for c in found["comparisons"]}
    assert by_arm == pytest.approx(
        {"with eagle": 0.6, "--spec-draft-n-max 3": 0.8, "--spec-draft-n-max 1": 1.25}
    )
    assert sorted(actions(found)) == ["disable", "set_k"]
    assert {v["grade"] for v in found["verdicts"]} == {"replayed", None}
    assert len(found["inputs"]) == 3


def test_one_block_in_a_document_is_the_document(tmp_path):
    spec = "".join(sglang(n, "accept len: 1.50, ", 60.0) for n in range(4))

    found = judge(tmp_path, f"My log:\n```\n{spec}```\n", "note.md")

    assert found["inputs"][0]["path"].endswith("note.md")
    assert found["totals"]["mean_length"] == pytest.approx(1.5)


def test_runs_of_one_drafter_with_other_lengths_are_not_pooled(tmp_path):
    table = (
        "Method | Batch Size | Num Spec Tokens | Decode Throughput (toks/sec)\n-- | -- | -- | --\n"
    )
    rows = "eagle | 1 | 1 | 150\neagle | 1 | 32 | 50\nvanilla | 1 | - | 100\n"

    found = judge(tmp_path, table + rows)

    assert {c["arm"]: c["speedup"] for c in found["comparisons"]} == pytest.approx(
        {"eagle k=1": 1.5, "eagle k=32": 0.5}
    )
    assert (found["verdicts"][0]["action"], found["verdicts"][0]["k"]) == ("set_k", 1)


TRACE = """Request class\tTarget-only time\tDraft time\tVerify time\tMean output per round\tResult
2,000-token context, batch 1\t1.00 ms/token\t0.50 ms\t0.65 ms\t4.2 tokens\t3.5 tokens/ms
32,000-token context, batch 1\t1.00 ms/token\t0.90 ms\t1.20 ms\t1.4 tokens\t0.67 tokens/ms
"""


def test_phase_times_of_a_trace_are_arithmetic_and_never_measured(tmp_path):
    found = judge(tmp_path, TRACE, "trace.tsv")

    short, long = found["verdicts"]
    # 4.2 tokens in 1.15 ms against one in 1.00 ms; 1.4 in 2.10 ms.
    assert [c["speedup"] for c in found["comparisons"]] == pytest.approx([4.2 / 1.15, 1.4 / 2.1])
    assert (short["action"], short["grade"], short["confidence"]) == ("keep", "modelled", "low")
    assert (long["action"], long["grade"], long["confidence"]) == ("disable", "modelled", "medium")
    flagged = [f for f in found["findings"] if f["code"] == "INCONSISTENT_BASELINE"]
    assert [f["evidence"]["verify_ms"] for f in flagged] == [0.65]
    assert any("0.65 ms is shorter than a target-only step" in r for r in short["reasons"])


def test_a_printed_benchmark_in_two_fences_is_a_comparison(tmp_path):
    def block(tok_s, more=""):
        return (
            "```\n============ Serving Benchmark Result ============\n"
            "Maximum request concurrency:             8\n"
            f"Output token throughput (tok/s):         {tok_s}\n{more}```\n"
        )

    found = judge(
        tmp_path, "no spec:\n" + block(100.0) + "MTP = 2:\n" + block(130.0, "Accept length: 1.9\n")
    )

    (comparison,) = found["comparisons"]
    assert (comparison["arm"], comparison["baseline"], comparison["k"]) == ("MTP = 2", "no spec", 2)
    assert comparison["speedup"] == pytest.approx(1.3)


def speculation(accepted, drafted, mean, rates):
    return (
        f"SpecDecoding metrics: Mean acceptance length: {mean}, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def test_a_drafter_that_is_hardly_ever_right_cannot_pay_whatever_a_step_costs(tmp_path):
    found = judge(tmp_path, speculation(20, 2000, "1.04", "0.040, 0.000, 0.000, 0.000"), "a.log")

    (verdict,) = found["verdicts"]
    assert (verdict["action"], verdict["k"], verdict["grade"]) == ("disable", 0, "modelled")
    assert any("at most 4.0%" in reason for reason in verdict["reasons"])


def test_a_drafter_with_room_is_not_judged_by_its_acceptance(tmp_path):
    found = judge(tmp_path, speculation(30, 2000, "1.06", "0.060, 0.000, 0.000, 0.000"), "a.log")

    assert actions(found) == ["collect_baseline"]


def test_few_rounds_do_not_condemn_a_drafter(tmp_path):
    found = judge(tmp_path, speculation(1, 160, "1.03", "0.025, 0.000, 0.000, 0.000"), "a.log")

    assert actions(found) == ["collect_baseline"]


def test_a_long_draft_of_which_little_is_kept_is_called_too_long_without_positions(tmp_path):
    text = (
        "       eval time =   10000.00 ms /   200 tokens\n"
        "draft acceptance rate = 0.06667 (  100 accepted /  1500 generated)\n"
    )

    found = judge(tmp_path, text, "a.log")

    # 100 steps propose 15 each and keep 1: with h / (1 - h) = 1, h = 0.5, five positions keep 98 %.
    told = next(f["evidence"] for f in found["findings"] if f["code"] == "K_TOO_LONG")
    assert (told["proposed_per_round"], told["enough"]) == (15, 5)


def test_tgis_histogram_of_skipped_tokens_is_its_length(tmp_path):
    text = (
        "tgi_request_skipped_tokens_sum 900\ntgi_request_skipped_tokens_count 1000\n"
        "tgi_request_generated_tokens_sum 1900\n"
    )

    found = judge(tmp_path, text, "m.prom")

    assert found["totals"]["mean_length"] == pytest.approx(1.9)
    assert found["inputs"][0]["engine"] == "tgi"


NOTE = """I tried the draft on my laptop.

With the 0.5B draft model I get 31.5 tok/s, but without it only 21.0 tok/s.
"""


def test_a_sentence_is_judged_as_two_runs(tmp_path):
    found = judge(tmp_path, NOTE)

    assert actions(found) == ["keep"]
    assert found["verdicts"][0]["confidence"] == "low"
    assert found["comparisons"][0]["speedup"] == pytest.approx(1.5)


def test_a_sentence_beside_a_table_repeats_it(tmp_path):
    table = "| mode | tok/s |\n|---|---|\n| no draft | 21.0 |\n| with draft | 31.5 |\n"

    assert len(judge(tmp_path, NOTE + "\n" + table)["comparisons"]) == 1


def test_a_draft_length_of_zero_beside_a_run_without_speculation_is_no_baseline(tmp_path):
    rows = "| none | 40 |\n| 0 | 50 |\n| 2 | 52 |\n| 6 | 30 |\n"
    found = judge(tmp_path, "| draft-n-max | t/s |\n|---|---|\n" + rows)

    ratios = {c["arm"]: c["speedup"] for c in found["comparisons"]}
    assert ratios == pytest.approx({"k=0": 1.25, "k=2": 1.3, "k=6": 0.75})
    assert (found["verdicts"][0]["action"], found["verdicts"][0]["k"]) == ("set_k", 2)


def test_percentages_with_a_sign_are_changes_and_no_figures(tmp_path):
    rows = "".join(f"| {t} | +{n}.50% | +{n}.25% |\n" for n, t in enumerate((0.0, 0.5, 1.0)))
    text = "**draft-mtp**\n\n| temp | accepted length | throughput |\n|---|---|---|\n" + rows

    with pytest.raises(InputError):
        judge(tmp_path, text)


def test_prose_between_two_pairs_of_speeds_parts_them(tmp_path):
    pairs = "speed, -SD: {} tokens/second\nspeed, +SD: {} tokens/second\n"
    between = (
        "\nAt the lower power limit, in t/s and with the same two cards, it looks like this:\n\n"
    )
    found = judge(
        tmp_path, "At full power:\n" + pairs.format(20, 30) + between + pairs.format(12, 9)
    )

    assert [c["speedup"] for c in found["comparisons"]] == pytest.approx([1.5, 0.75])
    assert actions(found) == ["keep", "disable"]


def test_cells_copied_from_a_page_stand_in_lines_of_their_own(tmp_path):
    cells = ["Setup", "Output (tokens/s)", "Engine (w/o speculation, 1x H100)", "150 tokens/s",
             "Engine + EAGLE (1x H100)", "240 tokens/s"]  # fmt: skip
    found = judge(tmp_path, "\n\n".join(cells) + "\n")

    assert [c["speedup"] for c in found["comparisons"]] == pytest.approx([1.6])


def test_memory_beside_the_speeds_is_no_condition(tmp_path):
    rows = "".join(f"| {b} | {10 * b} | {14 * b} | {20 + b}.5 |\n" for b in (1, 2, 4))
    head = "| batch | baseline tok/s | MTP tok/s | peak GB |\n|---|---|---|---|\n"
    found = judge(tmp_path, head + rows)

    assert [v["class"] for v in found["verdicts"]] == [{"batch": 1}, {"batch": 2}, {"batch": 4}]


def test_statistics_of_one_set_of_runs_are_no_runs(tmp_path):
    rows = "| no spec | 40.0 mean / 41.5 median |\n| MTP k=2 | 60.0 mean / 66.0 median |\n"
    found = judge(tmp_path, "| | tok/s |\n|---|---|\n" + rows)

    assert [(c["speedup"], c["ci"]) for c in found["comparisons"]] == [(pytest.approx(1.5), None)]
    assert found["verdicts"][0]["confidence"] == "low"


def test_a_block_keeps_the_name_of_its_arm(tmp_path):
    block = "```\nOutput token throughput (tok/s):         40.00\n```\n"
    served = '```\nvllm serve m --speculative-config \'{"method": "eagle"}\'\n```\n'
    found = judge(tmp_path, served + "W/O EAGLE\n" + block)

    assert actions(found) == ["no_data"]
    assert "ARMS_NOT_RECOGNISED" not in codes(found)

    found = judge(
        tmp_path, served + "W/O EAGLE\n" + block + "W/ EAGLE\n" + block.replace("40", "60")
    )
    assert [c["speedup"] for c in found["comparisons"]] == pytest.approx([1.5])


def test_a_header_may_say_that_an_acceptance_stands_behind_the_speed(tmp_path):
    head = "| domain | Baseline t/s | MTP t/s (accept) | MTP |\n|---|---|---|---|\n"
    found = judge(
        tmp_path,
        head + "| code | 100.0 | 250.0 (53.0%) | 2.50× |\n| chat | 100 | 80 (19%) | 0.80× |\n",
    )

    assert [c["speedup"] for c in found["comparisons"]] == pytest.approx([2.5, 0.8])
    assert [w["acceptance_rate"] for w in found["windows"]] == pytest.approx([0.53, 0.19])


def test_lengths_by_data_set_stand_below_a_line_that_names_them(tmp_path):
    text = "Acceptance length (AL) by data set, 80 samples.\nTarget: `acme/8b`\n\n"
    head = "| Draft | chat | maths |\n|---|---|---|\n"
    found = judge(tmp_path, text + head + "| acme/draft-a | 2.6 | 3.1 |\n| local | 3.2 | 4.2 |\n")

    assert sorted(w["mean_length"] for w in found["windows"]) == [2.6, 3.1, 3.2, 4.2]
    assert actions(found) == ["collect_baseline"]


def test_abridged_json_is_read(tmp_path):
    counts = {"num_spec_steps": 20, "num_accepted_draft_tokens": 30, "num_draft_tokens": 60,
              "num_spec_tokens": 3}  # fmt: skip
    metrics = json.dumps({"speculative_decoding": counts})
    text = f'Like this:\n```json\n{{"choices": [ ... ], "metrics": {metrics}}}\n```\n'

    (window,) = judge(tmp_path, text)["windows"]
    assert (window["drafts"], window["accepted"], window["k"]) == (20, 30, 3)


def test_lengths_without_the_rest_of_their_line_are_read(tmp_path):
    line = "accept len: {}, accept rate: {}   @ 10,000 tok\n"
    found = judge(tmp_path, line.format("2.60", "0.40") + line.format("3.00", "0.50"), "a.log")

    assert [w["mean_length"] for w in found["windows"]] == [2.6, 3.0]


def test_a_speed_with_many_digits_stands_below_its_arm(tmp_path):
    line = "Generated Tokens: 256 Generation Speed:  {}  tokens/s\n"
    text = (
        "autoregressive:\n"
        + line.format("20.751232013756066")
        + "lookahead decoding:\n"
        + line.format("41.502464027512132")
    )

    assert [c["speedup"] for c in judge(tmp_path, text, "n.txt")["comparisons"]] == pytest.approx(
        [2]
    )


def test_prose_with_commas_and_figures_is_no_table(tmp_path):
    text = (
        "For reference, the baseline on my box: draft median **53.3 tok/s** (code 53, prose 23),\n"
        "which is, all in all, above your reference box of 50, with prose matching it, almost.\n"
    )

    with pytest.raises(InputError):
        judge(tmp_path, text)


def test_scores_are_no_names_of_arms(tmp_path):
    head = "| Task | Single TPOT (ms) | JSON Mode (score) |\n|---|---|---|\n"
    found = judge(tmp_path, head + "| m_suffix | 0.5 | 0.758 |\n| m_spec | 2.9 | NaN |\n")

    assert not {"keep", "set_k", "disable"} & set(actions(found))
    assert "0.758" not in json.dumps(found["findings"])
