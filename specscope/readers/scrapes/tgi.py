"""TGI's histogram of skipped tokens: accepted tokens per request and step.

It observes every step, so the length includes steps without a proposal. All observations are 0
without speculation, and also if no draft ever matched. Source: router/src/infer of
text-generation-inference 1.3 to 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from specscope.readers.records import Record, Window
from specscope.readers.scrapes.counters import Change


def windows(change: Change) -> Iterator[Record]:
    """One window, if the scrape holds the histogram."""
    sums: dict[str, float] = {}
    for (name, _), value in change.delta.items():
        if name.startswith("tgi_request_") and name.endswith(("_sum", "_count")):
            sums[name] = sums.get(name, 0.0) + value
    steps = sums.get("tgi_request_skipped_tokens_count")
    if not steps or steps < 0:
        return
    skipped = sums.get("tgi_request_skipped_tokens_sum", 0.0)
    tokens = sums.get("tgi_request_generated_tokens_sum")
    yield Window(
        change.input,
        "tgi",
        grain="counter",
        seconds=change.seconds,
        printed_length=1 + skipped / steps if skipped > 0 else None,
        generated=tokens,
        throughput_tok_s=tokens / change.seconds if tokens and change.seconds else None,
    )
