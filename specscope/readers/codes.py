"""The closed list of finding codes: severity, meaning, remedy (`analyze --codes`)."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """`info` explains, `warning` weakens a number, `error` makes one unusable."""

    severity: str
    meaning: str
    remedy: str


CODES: dict[str, Code] = {
    # what a number means in the engine that printed it
    "V0_ACCEPTANCE_NOT_PREFIX": Code(
        "warning",
        "vLLM V0 counts draft tokens that match after the first mismatch as accepted",
        "use the prefix figures given here: rounds = drafted / k, accepted = emitted - rounds",
    ),
    "V0_CUMULATIVE": Code(
        "info",
        "the counters in this log are sums since the engine started; windows are differences",
        "none needed",
    ),
    "V0_THROUGHPUT_UNDERCOUNT": Code(
        "warning",
        "vLLM V0's printed generation throughput is far below the tokens that it says it emitted",
        "do not compare it with a run without speculation; measure at the client",
    ),
    "ACCEPT_RATE_BONUS_INCLUDED": Code(
        "warning",
        "the printed accept rate divides by drafts + 1 and counts the bonus token",
        "use the strict rate given here, accepted / proposed",
    ),
    "ACCEPT_RATE_STRICT": Code(
        "info", "the printed accept rate is accepted / proposed already", "none needed"
    ),
    "ACCEPT_RATE_AMBIGUOUS": Code(
        "warning",
        "the printed accept rate fits more than one definition, so none is used",
        "give a longer log, or state the engine's number of draft tokens",
    ),
    "LLAMACPP_DENOMINATOR": Code(
        "info",
        "llama.cpp builds before June 2025 divide by generated drafts, later ones by tested drafts",
        "record the build number beside the rate; compare only rates of the same side",
    ),
    "SKIPPED_ROUNDS": Code(
        "warning",
        "the mean length leaves out rounds in which nothing was proposed",
        "read tokens per round over all rounds, as given in the evidence",
    ),
    "PRINTED_MEAN_UNWEIGHTED": Code(
        "info",
        "the mean of printed lengths differs from the length pooled from counts",
        "use the pooled figure: an average of averages weighs a small step like a large one",
    ),
    "DRAFTS_ESTIMATED": Code(
        "info",
        "the number of drafts is not printed and was recovered from rounded figures",
        "scrape the engine's counters for exact counts",
    ),
    "MEAN_LENGTH_ESTIMATED": Code(
        "info",
        "the file has no step count; steps are taken as generated - accepted tokens",
        "use a build or a log level that prints rounds or the mean length",
    ),
    "POSITION_RATES_BIASED": Code(
        "warning",
        "draft length varied, so a position's rate divides by drafts that never reached it",
        "do not choose k from these rates; use rounds that state their own k",
    ),
    # windows
    "IDLE_WINDOW": Code(
        "info",
        "a window that spans idle time; its rates per second are not those of decoding",
        "none needed: they are left out",
    ),
    "STATE_NOT_WINDOW": Code(
        "info",
        "a count of running requests at print time says nothing of the window before it",
        "none needed: it is stored as unknown",
    ),
    "NO_SPECULATION_SEEN": Code(
        "info",
        "windows without any draft: speculation was not observed, which is not 0 % acceptance",
        "none needed",
    ),
    "LOW_COVERAGE": Code(
        "warning",
        "most tokens did not come out of a speculative round, so acceptance speaks of few of them",
        "see why drafting is skipped (batch limit, no n-gram match, prefill); the gain is bounded",
    ),
    "DRAFTER_NEVER_USED": Code(
        "warning",
        "a drafter is configured and has proposed nothing",
        "remove it, or loosen its trigger: it costs calls and memory and cannot gain",
    ),
    "COUNTER_RESET": Code(
        "warning",
        "a counter fell: the engine restarted between the two readings",
        "take both readings from one start of the engine",
    ),
    "OUT_OF_ORDER": Code(
        "info", "lines or scrapes came out of order and were put in order", "none needed"
    ),
    "TORN_LINE": Code(
        "info", "a line is cut; its cut value is unknown, not a shorter number", "none needed"
    ),
    "LONG_LINE": Code("info", "a line too long to be a log line was skipped", "none needed"),
    "WINDOWS_MERGED": Code(
        "info", "neighbouring windows were merged to keep memory constant; totals are exact", "none"
    ),
    "INCOMPLETE_COUNTS": Code(
        "info",
        "windows that lack a count are left out of the totals",
        "use a version that prints drafted tokens and the mean length",
    ),
    "OVERLAPPING_INPUTS": Code(
        "info",
        "inputs that may count the same tokens; totals use the best kind only",
        "analyse one server at a time if that is not what you want",
    ),
    # impossible or defective
    "IMPOSSIBLE_VALUE": Code(
        "error", "a value that cannot be; it is stored as unknown", "report it to the engine"
    ),
    "SOURCE_DEFECT": Code(
        "error",
        "a source does not fill a field, or fills it with a constant",
        "read the figure elsewhere (server log, counters); update the engine",
    ),
    "AGGREGATION_DEFECT": Code(
        "error",
        "mean length and position rates disagree: engines or ranks were not summed",
        "sum the counters of all engines before dividing",
    ),
    "EOS_OVERCOUNT": Code(
        "warning",
        "the engine counts accepted tokens behind the end of the text, which nobody received",
        "use emitted tokens for gain; accepted counts speak of drafter quality only",
    ),
    "STALE_GAUGE": Code(
        "warning", "a gauge that keeps its last value while nothing runs", "none: stored as unknown"
    ),
    "STALE_DRAFT_LATENCY": Code(
        "warning",
        "draft latency is printed for steps without a draft: the last value was kept",
        "none needed: it counts only where something was drafted",
    ),
    "DUPLICATE_RANKS": Code(
        "info", "ranks of one engine repeat the same series; one of them is read", "none needed"
    ),
    "SPEC_INACTIVE": Code(
        "info",
        "speculation gauges are zero: not active or no data, since a real length is at least 1",
        "scrape while requests run, and check that speculation is on",
    ),
    "DRAINING_ENDPOINT": Code(
        "info",
        "this endpoint empties its queue when read: a second reader takes records away",
        "let one consumer poll, and keep every answer",
    ),
    "ITERATION_GAP": Code(
        "warning",
        "iteration numbers are missing: records were lost",
        "poll more often, from one place",
    ),
    "SPEC_DEAD": Code(
        "error",
        "nothing of many proposals was ever accepted",
        "check tokenizer, weights, template and adapter of the drafter: this is a fault",
    ),
    # requests and comparisons
    "REPEATED_PROMPT": Code(
        "warning",
        "the same prompt was run again from cache; its speed says nothing of new prompts",
        "use the first run, or different prompts",
    ),
    "PROMPT_FROM_CACHE": Code(
        "info", "the prompt came from cache, so there is no prefill speed", "none needed"
    ),
    "OUTPUTS_DIFFER": Code(
        "warning",
        "the arms did not produce the same amount of output; latency per request is not comparable",
        "compare per output token; check that outputs are identical at temperature 0",
    ),
    "LOADS_DIFFER": Code(
        "warning",
        "two inputs ran under different loads, so their speeds are not comparable",
        "run both under the same requests and the same concurrency",
    ),
    "NO_BASELINE": Code(
        "warning",
        "no target-only run in the input: a gain or loss is not proven",
        "measure the same traffic with the engine started without speculation",
    ),
    "ARM_ASSUMED": Code(
        "warning",
        "nothing says that this arm speculates except that it stands beside a run without",
        "give its draft length, its drafter or its acceptance",
    ),
    "ARMS_NOT_RECOGNISED": Code(
        "warning",
        "arms of which nothing says whether they speculate",
        "name the run without speculation `no_spec`, and give the others their k or acceptance",
    ),
    "ARMS_DIFFER": Code(
        "warning",
        "two arms differ in engine, precision, machine or model, or one of them leaves it open",
        "compare runs of one engine and one model at one precision on one machine",
    ),
    "SEVERAL_BASELINES": Code(
        "warning",
        "one class holds several target-only runs that are named differently",
        "compare each arm with the run that differs from it in speculation alone",
    ),
    "SPEEDUP_AS_PRINTED": Code(
        "warning",
        "the input prints speedups and not the run that they are relative to",
        "give the target-only run beside them",
    ),
    "NOT_RUN": Code(
        "info",
        "rows that are projected, estimated or expected are no runs",
        "run them, and give the result",
    ),
    "FIRST_POSITION_ONLY": Code(
        "info",
        "the acceptance of one draft position is not the acceptance rate",
        "give accepted and proposed tokens, or the rate of every position",
    ),
    "CHUNKED_STREAM": Code(
        "warning",
        "the time between chunks is far above the time per token: several tokens come at once, as "
        "under speculation",
        "say in the file's name or label whether the server speculates",
    ),
    "BASELINE_INFERRED": Code(
        "warning",
        "the target-only arm was recognised by what it lacks",
        "name it `none` or `baseline`",
    ),
    "K0_IS_NOT_BASELINE": Code(
        "warning",
        "a speculative engine that drafts nothing is slower than one started without speculation",
        "take the baseline from a server started without speculation",
    ),
    "CONFIG_DIFFERS": Code(
        "info",
        "arms differ in more than the draft length",
        "change one thing at a time before ascribing the gain to k",
    ),
    "VERDICT_VARIES": Code(
        "warning",
        "the verdict changes with the class",
        "decide per class; do not carry a verdict over",
    ),
    "METRICS_DISAGREE": Code(
        "warning", "per-token metrics of one pair point in different directions", "repeat the runs"
    ),
    "SINGLE_RUN": Code(
        "info", "one run per arm: no interval can be given", "repeat each arm in random order"
    ),
    "DRAFT_MISMATCH": Code(
        "warning",
        "the first position is rejected far more often than another run of the same model shows",
        "check draft sampling against temperature, chat template, tokenizer and adapter",
    ),
    "SYNTHETIC_PROMPTS": Code(
        "info", "random prompts represent no class of traffic", "replay your own requests"
    ),
    "ROUND_COST_EXPLAINS": Code(
        "warning",
        "runs differ in the time of a round, not in acceptance",
        "look at machine state (memory pressure, clocks, bandwidth) before the drafter",
    ),
    "VERIFY_NOT_ONE_STEP": Code(
        "warning",
        "verifying several tokens costs more than one target step",
        "predict from the measured cost by number of tokens, never from one step",
    ),
    "NO_ROOM": Code(
        "warning",
        "so few tokens come out of a round that even free drafting and verification gain nothing",
        "check the drafter's weights, tokenizer, template, quantisation and context limit; if they "
        "are right (no n-gram matches), switch speculation off for this traffic",
    ),
    "K_LADDER": Code(
        "info", "tokens per round that each draft length would keep", "try the shorter ones first"
    ),
    "K_TOO_LONG": Code(
        "warning", "the last positions add almost nothing and are verified every round", "lower k"
    ),
    "BREAK_EVEN": Code(
        "info",
        "what a target-only step would have to cost for speculation to be even",
        "measure it",
    ),
    "INCONSISTENT_BASELINE": Code(
        "error",
        "a verification pass is shorter than a target-only step of the same model and load",
        "take both times in one state of the machine, at the same batch and context",
    ),
    # time
    "TIME_PARTS": Code("info", "where the time of a round goes", "start with the largest part"),
    "DRAFT_SHARE": Code("info", "how much of a round is drafting", "see the text"),
    "HOST_SAMPLING": Code(
        "warning",
        "sampling draft tokens on the host costs as much as the draft model itself",
        "sample on the device, or draft greedily",
    ),
    "IDLE_IN_GRAPH": Code(
        "warning",
        "most idle time lies inside the verify graph, not between launches",
        "look at the kernels of the verify graph; the scheduler and the drafter are not the cause",
    ),
    "IDLE_GAPS": Code(
        "warning",
        "the device waits between launches for a good part of a round",
        "look for host synchronisation between draft and verify",
    ),
    "SLOW_LAUNCH": Code(
        "info", "launching the graph takes long on the host", "check that it overlaps device work"
    ),
    "TRACE_UNDER_RECORDED": Code(
        "error",
        "kernels are missing from the trace, so idle time is unknown",
        "trace fewer rounds or enlarge the activity buffer; do not conclude 'launch-bound'",
    ),
    "TRACE_BY_STRUCTURE": Code(
        "info",
        "nothing in the trace names draft or verify: the largest launch of a round is taken "
        "as verify",
        "switch the engine's profiling scopes on",
    ),
    "TRACE_CPU_ONLY": Code(
        "info", "a trace without device activity: host times, idle unknown", "trace the device too"
    ),
    # devices
    "COUNTER_STUCK": Code(
        "error",
        "profiling counters stand at zero while the device is busy",
        "run `dcgmi dmon -e 1001 -c 1` once, or restart the host engine; do not read it as idle",
    ),
    "UNSUPPORTED_FIELD": Code(
        "info",
        "the device does not support a field; the others are kept",
        "on unified-memory devices use system memory, marked as such",
    ),
    "LOCAL_TIME": Code("info", "times without a zone", "compare with other files with care"),
    # our own pipeline
    "TOO_MANY_PARTS": Code(
        "error",
        "ClickHouse refuses inserts: too many small parts",
        "insert at least 10 000 rows or every 1-5 s, few partitions; back off for minutes, spool",
    ),
    "STORE_ERROR": Code("warning", "the store reported an error", "see the message"),
    # the input itself
    "NOT_RECOGNISED": Code(
        "info", "a file whose content matches no known format", "see `specscope analyze --help`"
    ),
    "UNREADABLE": Code("warning", "a file that could not be read to its end", "see the message"),
}
