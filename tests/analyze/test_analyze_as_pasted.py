"""What is concluded from files that nobody prepared."""

import pytest
from analyze_cases import actions, codes

from specscope.analyze.collect import analyze


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
