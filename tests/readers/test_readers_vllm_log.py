"""vLLM logs as they come out of containers, several engines, iteration lines, torn ends."""

import json

import pytest
from reading import codes, read, unparsed, windows

from specscope.readers.records import Format, Origin

ENGINE = (
    "INFO 04-29 {time} [loggers.py:271] Engine {engine:03d}: Avg prompt throughput: 0.0 "
    "tokens/s, Avg "
    "generation throughput: {rate} tokens/s, Running: 3 reqs, {extra}Waiting: 1 reqs, GPU KV cache "
    "usage: 0.0%, Prefix cache hit rate: 0.0%"
)
SPEC = (
    "INFO 04-29 {time} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.33, "
    "Accepted "
    "throughput: 6.90 tokens/s, Drafted throughput: 10.40 tokens/s, Accepted: 69 tokens, Drafted: "
    "104 tokens, Per-position acceptance rate: 0.808, 0.519, Avg Draft acceptance rate: 66.3%"
)


def pair(time, engine=0, rate="12.1", extra=""):
    return [ENGINE.format(time=time, engine=engine, rate=rate, extra=extra), SPEC.format(time=time)]


def as_docker(lines):
    return [
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01"}) for line in lines
    ]


def as_kubernetes(lines):
    return [f"2026-04-29T11:30:53.123456789Z stderr F (APIServer pid=1) {line}" for line in lines]


def as_journald(lines):
    return [f"Apr 29 11:30:53 gpu-7 vllm[812]: {line}" for line in lines]


def as_compose(lines):
    return [f"llm-a-1  | (APIServer pid=1) {line}" for line in lines]


def as_coloured(lines):
    return [f"\x1b[0;36m(APIServer pid=1)\x1b[0;0m {line}" for line in lines]


def as_windows(lines):
    return [f"{line}\r" for line in lines]


DRESSES = (as_docker, as_kubernetes, as_journald, as_compose, as_coloured, as_windows, list)


@pytest.mark.parametrize("dress", DRESSES)
def test_a_prefix_changes_nothing(dress):
    lines = dress([*pair("11:30:53"), *pair("11:31:03")])

    found = windows("\n".join(lines) + "\n")

    assert len(found) == 2
    for window in found:
        assert (window.k, window.drafts, window.accepted, window.running) == (2, 52, 69, 3)
        assert window.coverage == pytest.approx(1.0, abs=0.01)
        assert window.seconds == pytest.approx(10.0)
    assert unparsed("\n".join(lines) + "\n") == []


def test_lines_of_two_engines_are_paired_with_their_own():
    lines = [*pair("11:30:53", 0, "12.1"), *pair("11:30:53", 1, "24.2")]
    lines += [*pair("11:31:03", 1, "24.2"), *pair("11:31:03", 0, "12.1")]

    found = windows("\n".join(lines) + "\n")

    coverage = {w.engine_index: w.coverage for w in found}
    assert coverage == {0: pytest.approx(1.0, abs=0.01), 1: pytest.approx(0.5, abs=0.01)}


def test_lines_of_two_services_in_one_file_are_kept_apart():
    one, two = [*pair("11:30:53"), *pair("11:31:03")], [*pair("11:30:53", 0, "24.2")]
    mixed = [f"a  | {one[0]}", f"b  | {two[0]}", f"b  | {two[1]}", f"a  | {one[1]}"]
    mixed += [
        f"a  | {one[2]}",
        f"b  | {ENGINE.format(time='11:31:03', engine=0, rate='24.2', extra='')}",
    ]
    mixed += [f"a  | {one[3]}"]

    found = windows("\n".join(mixed) + "\n")

    covered = sorted(w.coverage for w in found if w.drafts)
    assert covered == [
        pytest.approx(0.5, abs=0.01),
        pytest.approx(1.0, abs=0.01),
        pytest.approx(1.0, abs=0.01),
    ]


def test_new_fields_between_the_known_ones_are_passed_over():
    lines = pair("11:30:53", extra="Deferred: 2 reqs, KV fetch: 1, Preemptions: 4, ")

    window = windows("\n".join(lines) + "\n")[0]

    assert (window.running, window.waiting, window.drafts) == (3, 1, 52)


def test_the_order_of_fields_does_not_matter():
    body = SPEC.partition("SpecDecoding metrics: ")[2].format()
    parts = [
        "Avg Draft acceptance rate: 66.3%",
        "Drafted: 104 tokens",
        "Some new field: 7.1",
        "Accepted: 69 tokens",
        "Per-position acceptance rate: 0.808, 0.519",
        "Mean acceptance length: 2.33",
    ]

    window = windows("SpecDecoding metrics: " + ", ".join(parts) + "\n")[0]

    assert body
    assert (window.k, window.drafts, window.accepted) == (2, 52, 69)
    assert window.accepted_at == (42, 27)


@pytest.mark.parametrize("length", range(60, len(SPEC) + 20, 7))
def test_a_line_cut_anywhere_never_gives_a_smaller_number(length):
    line = SPEC.format(time="11:30:53")

    found = windows(line[:length])

    for window in found:
        assert window.accepted in (69, None)
        assert window.proposed in (104, None)
        assert all(rate in (0.808, 0.519, None) for rate in window.printed_positions or ())
        assert window.drafts in (52, None)


def test_an_iteration_line_gives_the_time_of_a_pure_decode_step():
    step = (
        "INFO 04-29 11:30:50 [loggers.py:199] Engine 000: Iteration({n}): {context} context "
        "requests, "
        "{context} context tokens, 2 generation requests, 6 generation tokens, iteration elapsed "
        "time: {ms} ms, GPU KV cache usage: 0.0%"
    )
    lines = [step.format(n=1, context=0, ms=8.0), step.format(n=2, context=0, ms=10.0)]
    lines += [step.format(n=3, context=5, ms=99.0), *pair("11:30:53")]

    window = windows("\n".join(lines) + "\n")[0]

    assert window.round_ms == 9.0


def test_the_engine_its_version_and_its_drafter_are_told():
    text = (
        "(EngineCore pid=7) INFO 11-29 15:03:14 [core.py:133] Initializing a V1 LLM engine "
        "(v0.32.0) "
        "with config: model='m', speculative_config=SpeculativeConfig(method='eagle3', model='d', "
        "num_spec_tokens=3), tokenizer='m'\n" + "\n".join(pair("11:30:53")) + "\n"
    )

    records = read(text)

    assert Origin("vllm", "0.32.0", "eagle3", 3, True) in records
    assert Format("vllm-log") in records


def test_a_configured_drafter_is_told_from_none():
    text = (
        "INFO 11-29 15:03:14 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=4)\n"
        + ENGINE.format(time="11:30:53", engine=0, rate="12.1", extra="")
        + "\n"
    )

    assert Origin("vllm", "0.32.0", "ngram", 4, True) in read(text)


def test_drafts_of_varying_length_are_recovered_from_the_mean_and_the_positions():
    text = (
        "SpecDecoding metrics: Mean acceptance length: 2.57, Accepted throughput: 3.05 tokens/s, "
        "Drafted throughput: 6.39 tokens/s, Accepted: 11 tokens, Drafted: 23 tokens, Per-position "
        "acceptance rate: 1.000, 0.286, 0.143, 0.143, Avg Draft acceptance rate: 47.8%\n"
    )

    window = windows(text)[0]

    assert (window.k, window.drafts, window.estimated) == (4, 7, ())


def test_a_count_that_rounding_leaves_open_is_marked_as_an_estimate():
    text = (
        "SpecDecoding metrics: Mean acceptance length: 2.57, Accepted: 31401 tokens, "
        "Drafted: 70001 "
        "tokens, Per-position acceptance rate: 0.900, 0.400, 0.150, 0.120, Avg Draft acceptance "
        "rate: 44.9%\n"
    )

    window = windows(text)[0]

    assert window.drafts == pytest.approx(20_000, rel=0.005)
    assert window.estimated == ("drafts",)


def test_v0_lines_that_fall_are_another_start_of_the_engine():
    line = (
        "INFO 08-26 12:07:{second} metrics.py:427] Speculative metrics: Draft acceptance "
        "rate: 0.655, "
        "System efficiency: 0.649, Number of speculative tokens: 4, Number of accepted "
        "tokens: {a}, "
        "Number of draft tokens: {d}, Number of emitted tokens: {e}.\n"
    )
    text = line.format(second="05", a=1735, d=2648, e=2149) + line.format(
        second="10", a=10, d=40, e=20
    )

    found = windows(text)

    assert [w.drafts for w in found] == [662, 10]
    assert "COUNTER_RESET" in codes(text)


def test_a_line_without_positions_does_not_inherit_k():
    text = (
        SPEC.format(time="11:30:53")
        + "\nSpecDecoding metrics: Draft acceptance rate: 100.0%, Accepted: 66 tokens, "
        "Drafted: 66 tokens\n"
    )

    bare = windows(text)[1]

    assert (bare.k, bare.drafts, bare.accepted) == (None, None, 66)


def test_a_speculation_line_before_its_engine_line_is_still_its_pair():
    (first, second), (third, fourth) = pair("11:30:53"), pair("11:31:03")

    found = windows("\n".join([second, first, fourth, third]) + "\n")

    assert [w.drafts for w in found] == [52, 52]
    assert [w.running for w in found] == [3, 3]
    assert found[1].coverage == pytest.approx(1.0, abs=0.01)


def test_a_speculation_line_of_another_time_is_not_paired():
    (first, second), (third, _) = pair("11:30:53"), pair("11:31:03")

    found = windows("\n".join([first, third, second]) + "\n")

    assert [w.drafts for w in found if w.throughput_tok_s is None] == [52]
