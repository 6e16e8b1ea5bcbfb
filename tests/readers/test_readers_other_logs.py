"""SGLang, llama.cpp and TensorRT-LLM logs in spellings that the cases do not show."""

import pytest
from reading import codes, read, unparsed, windows

from specscope.readers.logs.accept_rate import Definition, RateDefinition
from specscope.readers.records import Format

SGLANG = (
    "[2026-05-01 10:00:0{n}{rank}] Decode batch{mark} #running-req: {running}, #token: 512, token "
    "usage: 0.03, accept len: {length:.2f}, accept rate: {rate:.2f}, {between}cuda graph: "
    "True, gen "
    "throughput (token/s): {tok_s:.2f}, #queue-req: 0"
)


def sglang(n, length, rate, tok_s=400.0, running=2, mark=",", rank=" TP0", between=""):
    return SGLANG.format(
        n=n,
        length=length,
        rate=rate,
        tok_s=tok_s,
        running=running,
        mark=mark,
        rank=rank,
        between=between,
    )


@pytest.mark.parametrize("mark", [",", ".", " [37],"])
@pytest.mark.parametrize("between", ["", "pre-allocated usage: 0.00, #prealloc-req: 0, "])
def test_a_strict_rate_is_taken_as_it_is(mark, between):
    lines = [
        sglang(n, length, (length - 1) / 3, mark=mark, between=between)
        for n, length in enumerate((2.41, 1.90, 2.20))
    ]

    found = windows("\n".join(lines) + "\n")

    assert {w.k for w in found} == {3}
    assert found[0].acceptance_rate == pytest.approx(0.47)
    assert "ACCEPT_RATE_STRICT" in codes("\n".join(lines) + "\n")


def test_a_batch_that_accepts_nothing_reads_zero_under_the_old_definition():
    lines = [sglang(0, 1.0, 0.25), sglang(1, 2.0, 0.5)]

    found = windows("\n".join(lines) + "\n")

    assert [w.acceptance_rate for w in found] == [0.0, pytest.approx(1 / 3)]


def test_time_of_a_round_counts_all_requests_of_the_batch():
    lines = [sglang(n, 2.0, 0.5, tok_s=400.0, running=4) for n in range(3)]

    found = windows("\n".join(lines) + "\n")

    assert found[1].round_ms == pytest.approx(1000 * 2.0 * 4 / 400.0)


def test_ranks_of_one_engine_are_read_once_and_data_parallel_ones_apart():
    lines = []
    for n in range(3):
        for rank in (" DP0 TP0", " DP0 TP1", " DP1 TP0"):
            lines.append(sglang(n, 2.0, 0.5, rank=rank))

    found = windows("\n".join(lines) + "\n")

    assert len(found) == 6
    assert {w.engine_index for w in found} == {0, 1}
    assert "DUPLICATE_RANKS" in codes("\n".join(lines) + "\n")


def test_a_line_after_idle_time_has_no_speed():
    lines = [sglang(n, 2.0, 0.5, tok_s=400.0) for n in range(4)] + [sglang(5, 2.0, 0.5, tok_s=3.0)]

    found = windows("\n".join(lines) + "\n")

    assert (found[4].round_ms, found[4].throughput_tok_s) == (None, None)
    assert found[3].round_ms == pytest.approx(10.0)


def test_a_log_without_speculation_keeps_its_speed():
    line = (
        "[2026-05-01 10:00:0{n}] Decode batch. #running-req: 2, #token: 512, token usage: "
        "0.03, cuda "
        "graph: True, gen throughput (token/s): 150.00, #queue-req: 0"
    )

    found = windows("\n".join(line.format(n=n) for n in range(3)) + "\n")

    assert [w.mean_length for w in found] == [None] * 3
    assert found[2].throughput_tok_s == 150.0


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(2.17, 0.54), (1.95, 0.49)], Definition("bonus_included", 3)),
        ([(4.00, 0.80)], Definition("bonus_included", 4)),
        ([(2.41, 0.47)], Definition("strict", 3)),
        ([(1.00, 0.00)], Definition("strict", None)),
        ([(3.00, 1.00)], Definition("ambiguous", None)),
        ([(9.99, 0.01)], Definition("ambiguous", None)),
    ],
)
def test_the_definition_of_a_rate_follows_from_its_numbers(pairs, expected):
    rates = RateDefinition()

    for length, rate in pairs:
        rates.see(length, rate)

    assert rates.decide() == expected


def test_an_old_llamacpp_server_line_is_read():
    text = (
        "print_timings: prompt eval time     =     300.00 ms /    20 tokens\n"
        "print_timings:        eval time     =    3000.00 ms /   200 runs\n"
        "draft acceptance rate = 0.75000 (  120 accepted /   160 generated)\n"
    )

    window = windows(text)[0]

    assert (window.generated, window.accepted, window.proposed) == (200, 120, 160)
    assert window.throughput_tok_s == pytest.approx(66.67, abs=0.01)


def test_rounds_of_a_request_that_never_finished_are_kept():
    text = "".join(
        f"0.14.95{n}.531 I slot   operator(): id  0 | task 48 | accepted  {n}/ 4 draft tokens\n"
        for n in range(4)
    )

    window = windows(text)[0]

    assert (window.drafts, window.proposed, window.accepted) == (4, 16, 6)
    assert window.accepted_at == (3, 2, 1, 0)


def test_a_round_that_restored_a_checkpoint_is_said():
    text = (
        "0.1.000.000 I slot operator(): id  0 | task 4 | accepted  2/ 4 draft tokens "
        "(restore checkpoint)\n"
        "0.1.000.001 I slot print_timing: id  0 | task 4 | prompt eval time = 3.00 ms / 20 tokens\n"
        "0.1.000.002 I slot print_timing: id  0 | task 4 |        eval time = 30.00 ms / 3 tokens\n"
        "0.1.000.003 I slot print_timing: id  0 | task 4 | draft acceptance = 0.5 ( 2 accepted / 4 "
        "generated), mean len =  3.00\n"
    )

    assert "VERIFY_NOT_ONE_STEP" in codes(text)
    assert windows(text)[0].drafts == 1


def test_statistics_lines_are_differenced_between_prints():
    line = (
        "statistics draft-mtp: #calls(b,g,a) = {b} {d} {d}, #gen drafts = {d}, #acc drafts = "
        "{d}, #gen "
        "tokens = {g}, #acc tokens = {a}, dur(b,g,a) = 0.0, {ms}, 0.0 ms\n"
    )
    text = line.format(b=1, d=10, g=30, a=20, ms=50.0) + line.format(
        b=2, d=25, g=75, a=40, ms=140.0
    )

    first, second = windows(text)

    assert (first.drafts, first.accepted) == (10, 20)
    assert (second.drafts, second.proposed, second.accepted) == (15, 45, 20)
    assert second.draft_ms == pytest.approx(6.0)


def test_trtllm_iteration_lines_give_a_step_time():
    line = (
        "iter = {n}, global_rank = 0, rank = 0, num_scheduled_requests = 2, kv_cache_util = 0.1, "
        "host_step_time = 7.4ms, prev_device_step_time = {ms}ms, states = "
        "{{'num_ctx_requests': {c}}}\n"
    )
    text = (
        line.format(n=1, ms=8.0, c=0)
        + line.format(n=2, ms=10.0, c=0)
        + line.format(n=3, ms=90.0, c=1)
    )

    window = windows(text)[0]

    assert (window.round_ms, window.running) == (9.0, 2)


def test_two_engines_in_one_file_are_both_read():
    text = (
        "a | SpecDecoding metrics: Draft acceptance rate: 100.0%, Accepted: 66 tokens, "
        "Drafted: 66 tokens\n" + "b | " + sglang(0, 2.0, 0.5) + "\n"
    )

    records = read(text)

    assert {r.name for r in records if isinstance(r, Format)} == {"vllm-log", "sglang-log"}
    assert {w.engine for w in windows(text)} == {"vllm", "sglang"}
    assert unparsed(text) == []


def test_lines_out_of_order_lose_only_the_one_that_covers_idle_time():
    lines = [sglang(n, 2.0, 0.5, tok_s=400.0) for n in range(1, 6)]
    lines.insert(3, sglang(0, 2.17, 0.54, tok_s=0.4))

    found = windows("\n".join(lines) + "\n")

    assert [w.excluded is not None for w in found] == [False] * 3 + [True] + [False] * 2
