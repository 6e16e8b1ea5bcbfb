"""Lines as people paste them: older spellings, cut blocks, several runs, prose between."""

import pytest
from reading import codes, read, scrapes, unparsed, windows

from specscope.readers.records import Finding, TimeParts


def test_the_first_spelling_of_v0_says_tokens_twice():
    line = (
        "INFO 07-24 04:00:31 metrics.py:316] Speculative metrics: Draft acceptance rate: 0.000, "
        "System efficiency: 0.059, Number of speculative tokens: 16, Number of accepted tokens: 0, "
        "Number of draft tokens tokens: 3200, Number of emitted tokens tokens: 200.\n"
    )

    (window,) = windows(line)

    assert (window.k, window.proposed, window.drafts, window.accepted) == (16, 3200, 200, 0)


def test_prose_about_draft_acceptance_is_no_line_of_an_engine():
    text = (
        "# why is the draft acceptance so low?\n"
        "draft acceptance rate = 0.50000 (   40 accepted /    80 generated)\n"
    )

    assert unparsed(text) == []
    assert windows(text)[0].acceptance_rate == 0.5


def test_a_quoted_end_of_a_speculation_line_gives_its_rates():
    (window,) = windows("Per-position acceptance rate: 0.800, 0.500, 0.250\n")

    assert window.k == 3
    assert window.mean_length == pytest.approx(2.55)
    assert windows("The Per-position acceptance rate: falls with depth\n") == []


RUN = (
    "n_draft   = {k}\nn_predict = {predict}\nn_drafted = {drafted}\nn_accept  = {accept}\n"
    "accept    = 50.000%\n\n{verb} {predict} tokens in   {seconds} seconds, speed: 10 t/s\n\n"
)


def test_two_runs_of_llama_speculative_in_one_file_are_two():
    first = RUN.format(k=4, predict=100, drafted=160, accept=60, verb="decoded", seconds="10.000")
    second = RUN.format(k=8, predict=90, drafted=320, accept=50, verb="decoded", seconds="18.000")

    one, two = windows(first + second)

    # 160 / 4 = 40 drafts and 60 accepted are the 100 tokens; the same with 40 and 50.
    assert (one.k, one.drafts, one.throughput_tok_s, one.round_ms) == (4, 40, 10, 250)
    assert (two.k, two.drafts, two.throughput_tok_s, two.round_ms) == (8, 40, 5, 450)


def test_the_first_versions_say_generated_where_later_ones_say_decoded():
    text = RUN.format(k=4, predict=100, drafted=160, accept=60, verb="generated", seconds="200.000")

    assert windows(text)[0].throughput_tok_s == 0.5


def test_drafts_shorter_than_asked_for_are_not_taken_for_few_full_ones():
    text = RUN.format(k=8, predict=136, drafted=112, accept=36, verb="decoded", seconds="10.000")

    (window,) = windows(text)

    # 112 / 8 = 14 full drafts would leave 86 of 136 tokens without a draft; a run drafts always.
    assert window.drafts is None
    assert window.mean_length == pytest.approx(136 / 100)
    assert window.round_ms == pytest.approx(100)
    assert "MEAN_LENGTH_ESTIMATED" in codes(text)


def test_a_cut_block_of_timings_has_no_shares():
    text = (
        "draft:\n\nllama_print_timings:        eval time = 27360.44 ms /   214 runs   ( 1 ms)\n"
        "llama_print_timings:       total time = 290684.19 ms\n\n"
        "target:\n\nllama_print_timings:        load time = 44875.62 ms\nllama_pr\n"
    )

    found = read(text)

    assert not [record for record in found if isinstance(record, TimeParts)]
    assert not [f for f in found if isinstance(f, Finding) and f.code == "TIME_PARTS"]


def test_a_query_result_with_bars_is_a_scrape():
    text = (
        'vllm:spec_decode_num_drafts_total{engine="0", job="vllm"} | 22\n-- | --\n'
        '| vllm:spec_decode_num_draft_tokens_total{engine="0", job="vllm"} | 66 |\n'
    )

    (scrape,) = scrapes(text)

    assert {name: value for (name, _), value in scrape.samples.items()} == {
        "vllm:spec_decode_num_drafts_total": 22,
        "vllm:spec_decode_num_draft_tokens_total": 66,
    }


@pytest.mark.parametrize(
    "names",
    [
        ("spec_accept_token_num", "spec_draft_token_num"),
        ("spec_num_correct_drafts", "spec_num_proposed_drafts"),
        ("spec_accepted_tokens", "spec_draft_tokens"),
    ],
)
def test_sglangs_counts_are_known_under_all_their_names(names):
    text = (
        '{"meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 112, '
        f'"spec_verify_ct": 100, "{names[0]}": 11, "{names[1]}": 500}}}}'
    )

    (window,) = windows(text)

    assert (window.drafts, window.proposed, window.accepted, window.k) == (100, 500, 11, 5)


def test_steps_and_tokens_of_a_request_give_what_was_accepted():
    text = '{"meta_info": {"completion_tokens": 201, "spec_verify_ct": 80, "id": "a"}}'

    (window,) = windows(text)

    # 1 token from the prompt's pass, 80 from verification, the rest are accepted drafts.
    assert (window.drafts, window.accepted, window.estimated) == (80, 120, ("accepted",))
