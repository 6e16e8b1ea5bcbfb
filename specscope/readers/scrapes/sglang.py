"""SGLang's gauges: means over the last decode interval; they keep their values while the engine
idles."""

from __future__ import annotations

from collections.abc import Iterator

from specscope.readers.logs.accept_rate import RateDefinition
from specscope.readers.logs.lines import whole
from specscope.readers.records import Finding, Record, TimeParts, Window
from specscope.readers.scrapes.counters import Change

PREFIXES = ("sglang:", "sglang_")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank", "engine_rank")


def windows(change: Change) -> Iterator[Record]:
    """One window per data-parallel engine; ranks that repeat a series are read once."""
    engines: dict[tuple[str, str], dict[str, float]] = {}
    leaders: dict[tuple[str, str, str], tuple[str, ...]] = {}
    repeated = 0
    for (name, labels), value in sorted(change.last.items()):
        prefix = next((p for p in PREFIXES if name.startswith(p)), None)
        if prefix is None:
            continue
        label = dict(labels)
        key = (label.get("model_name", ""), label.get("dp_rank", ""))
        short = name[len(prefix) :]
        if "category" in label:
            short += f"/{label['category']}"
            value = change.delta.get((name, labels), value)
        ranks = tuple(label.get(rank, "") for rank in _RANKS)
        leader = leaders.setdefault((*key, short), ranks)
        if ranks != leader:
            repeated += 1
            continue
        engines.setdefault(key, {})[short] = value
    if repeated:
        yield Finding(
            "DUPLICATE_RANKS",
            f"{repeated} series differ in their rank only: one engine, read once",
            {"series": repeated},
        )
    for (_, dp), gauges in sorted(engines.items()):
        yield from _engine(change, whole(dp), gauges)


def _engine(change: Change, index: int | None, gauges: dict[str, float]) -> Iterator[Record]:
    running = gauges.get("num_running_reqs")
    tok_s = gauges.get("gen_throughput")
    length = gauges.get("spec_accept_length")
    rate = gauges.get("spec_accept_rate")
    yield from _times(change, gauges)
    if running == 0 and tok_s:
        yield Finding(
            "STALE_GAUGE",
            f"gen_throughput still shows {tok_s:g} while nothing runs",
            {"gen_throughput": tok_s},
        )
        tok_s = None
    if length == 0 or (length is None and rate == 0):
        yield Finding(
            "SPEC_INACTIVE",
            "acceptance gauges are exactly 0: no speculation active, or no data yet",
            {"spec_accept_length": length, "spec_accept_rate": rate},
        )
        length = rate = None
    elif length is not None and running == 0:
        yield Finding("STALE_GAUGE", "acceptance gauges keep the last interval while nothing runs")
    if length is None and tok_s is None:
        return
    drafted = gauges.get("spec_num_draft_tokens")
    steps = gauges.get("spec_num_steps")
    k = int(steps) if steps else int(drafted) - 1 if drafted else None
    if length is not None and rate is not None:
        definition = RateDefinition()
        # Gauges are not rounded: two decimals are enough to tell the definitions apart.
        definition.see(round(length, 2), round(rate, 2))
        decided = definition.decide()
        k = k or decided.k
        if decided.name == "bonus_included":
            yield Finding("ACCEPT_RATE_BONUS_INCLUDED", "the gauge counts the bonus token")
    strict = (length - 1) / k if length is not None and k else None
    yield Window(
        change.input,
        "sglang",
        grain="counter",
        seconds=change.seconds,
        engine_index=index,
        k=k,
        printed_rate=strict,
        printed_length=length,
        running=int(running) if running is not None else None,
        waiting=int(gauges["num_queue_reqs"]) if "num_queue_reqs" in gauges else None,
        throughput_tok_s=tok_s,
        round_ms=1000 * length * max(running or 1, 1) / tok_s if length and tok_s else None,
    )


def _times(change: Change, gauges: dict[str, float]) -> Iterator[Record]:
    """Device seconds by category (SGLANG_ENABLE_METRICS_DEVICE_TIMER=1)."""
    prefix = "forward_execution_seconds_total/"
    seconds = {n[len(prefix) :]: v for n, v in gauges.items() if n.startswith(prefix)}
    draft = sum(v for name, v in seconds.items() if "draft" in name)
    verify = seconds.get("target_verify", 0.0)
    if not draft and not verify:
        return
    parts = {"draft": 1000 * draft, "verify": 1000 * verify}
    yield TimeParts(change.input, parts_ms=parts)
    yield Finding(
        "DRAFT_SHARE",
        f"drafting is {draft / (draft + verify):.1%} of device time in draft and verify graphs",
        {"share": round(draft / (draft + verify), 4)},
    )
