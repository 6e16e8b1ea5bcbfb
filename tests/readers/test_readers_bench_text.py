"""Printed benchmark results."""

import pytest
from reading import arms, windows

from specscope.analyze.collect import analyze

BLOCK = """\
============ Serving Benchmark Result ============
Successful requests:                     {requests}
Maximum request concurrency:             4
Benchmark duration (s):                  100.00
Total input tokens:                      512
Total generated tokens:                  {tokens}
Request throughput (req/s):              0.74
Output token throughput (tok/s):         {tok_s}
Total Token throughput (tok/s):          4361.09
---------------Time to First Token----------------
Mean TTFT (ms):                          385.79
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          {tpot}
Median TPOT (ms):                        9.99
{spec}==================================================
"""
SPEC = """\
---------------Speculative Decoding---------------
Acceptance rate (%):                     7.11
Acceptance length:                       1.14
Drafts:                                  14319
Draft tokens:                            28638
Accepted tokens:                         2037
Per-position acceptance (%):
  Position 0:                            10.01
  Position 1:                            4.21
"""


def block(tok_s, tpot, spec="", indent=""):
    text = BLOCK.format(requests=32, tokens=16700, tok_s=tok_s, tpot=tpot, spec=spec)
    return "".join(indent + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("indent", ["", "    ", "> "])
def test_a_printed_block_is_an_arm_and_a_window(indent):
    text = block("113.40", "7.98", SPEC, indent)

    arm, window = arms(text)[0], windows(text)[0]

    assert (arm.role, arm.k, arm.conditions) == ("speculative", 2, {"concurrency": 4})
    assert arm.metrics["throughput_tok_s"] == 113.4
    assert arm.metrics["output_tokens"] == pytest.approx(16700 / 32)
    assert (window.drafts, window.proposed, window.accepted) == (14319, 28638, 2037)
    assert window.acceptance_rate == pytest.approx(2037 / 28638)
    assert window.position_rates == (pytest.approx(0.1001), pytest.approx(0.0421))
    assert window.round_ms == pytest.approx(7.98 * (1 + 2037 / 14319))


def test_two_printed_blocks_are_compared(tmp_path):
    (tmp_path / "base.txt").write_text(block("100.00", "10.00"))
    (tmp_path / "eagle.txt").write_text(block("131.00", "7.50", SPEC))

    found = analyze([str(tmp_path)]).as_json()

    assert [v["action"] for v in found["verdicts"]] == ["keep"]
    assert found["verdicts"][0]["class"] == {"concurrency": 4}
    assert found["comparisons"][0]["speedup"] == pytest.approx(1.31)


def test_blocks_without_their_headers_are_told_apart():
    text = "\n".join(
        f"Output token throughput (tok/s):         {tok_s}\nMean TPOT (ms):   5.0\nAcceptance "
        "length: 2.4"
        for tok_s in (219.95, 270.71)
    )

    assert [arm.metrics["throughput_tok_s"] for arm in arms(text + "\n")] == [219.95, 270.71]
