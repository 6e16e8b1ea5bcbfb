"""A fleet that is scraped in part: sums of what every engine gave, rates over whole engines."""

import pytest

from specscope.analyze.collect import analyze

NAMES = {"drafts": "drafts", "proposed": "draft_tokens", "accepted": "accepted_tokens"}


def scrape(tmp_path, engines):
    lines = [
        f'vllm:spec_decode_num_{NAMES[name]}_total{{engine="{number}"}} {value}'
        for number, counts in enumerate(engines)
        for name, value in counts.items()
    ]
    path = tmp_path / "metrics.prom"
    path.write_text("\n".join(lines) + "\n")
    return analyze([str(path)]).as_json()["totals"]


def test_rates_are_over_engines_that_supply_both_and_sums_over_all(tmp_path):
    total = scrape(
        tmp_path,
        [
            {"drafts": 12, "proposed": 36, "accepted": 14},
            {"drafts": 10, "proposed": 30},
        ],
    )

    assert (total["drafts"], total["proposed"], total["accepted"]) == (22, 66, 14)
    assert total["acceptance_rate"] == pytest.approx(14 / 36)
    assert total["mean_length"] == pytest.approx(1 + 14 / 12)


def test_whole_engines_pool_as_one(tmp_path):
    total = scrape(tmp_path, [{"drafts": 10, "proposed": 30, "accepted": n} for n in (12, 6)])

    assert (total["drafts"], total["accepted"]) == (20, 18)
    assert total["acceptance_rate"] == pytest.approx(0.3)
