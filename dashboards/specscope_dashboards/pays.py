"""specscope: does it pay? What speculation yields, what it costs, for which traffic."""

from __future__ import annotations

from grafana_foundation_sdk.builders import barchart, table, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from specscope import queries
from specscope_dashboards import panels
from specscope_dashboards.conditions import class_, during, replica
from specscope_dashboards.page import page

BY_REPLICA = during("minute", "replica")
BY_CLASS = during("minute", "replica", "class")


def dashboard() -> Dashboard:
    """All of it, from the question to what the answer leaves out."""
    return (
        page("specscope-pays", "specscope: does it pay?")
        .with_variable(replica())
        .with_variable(class_())
        .with_row(panels.row("Does it pay?"))
        .with_panel(verdicts())
        .with_panel(break_even())
        .with_panel(throughput_by_arm())
        .with_row(panels.row("What speculation yields"))
        .with_panel(tokens_per_round())
        .with_panel(acceptance_by_position())
        .with_panel(acceptance_rate())
        .with_row(panels.row("Where a round's time goes"))
        .with_panel(round_time())
        .with_panel(round_time_by_k())
        .with_panel(throughput())
        .with_panel(bandwidth())
        .with_panel(memory_busy())
        .with_row(panels.row("Batch and context"))
        .with_panel(batch_and_waiting())
        .with_panel(context())
        .with_row(panels.row("What a client feels"))
        .with_panel(request_latency())
        .with_row(panels.row("What these numbers leave out"))
        .with_panel(losses())
    )


def verdicts() -> table.Panel:
    panel = panels.rows(
        "Verdicts",
        "The newest verdict on each kind of traffic: what to do, the draft length, and the speedup "
        "that it rests on with its interval. The service judges the evidence of the last seven "
        "days under the table in force, as the report and the gate do. A verdict pools the "
        "replicas that run the same configuration, so the choice of a replica does not change this "
        "table. A speedup below 1 means that speculation costs there. A gate may change on a "
        "verdict of high confidence; the others say how many pairs they still need.",
        queries.verdicts,
        during("assessed_at", "class"),
        width=24,
    )
    return panels.in_unit(panel, "none", "k", "pairs", "pairs_needed")


def break_even() -> timeseries.Panel:
    panel = panels.series(
        "Tokens per round against break-even",
        "What a speculative round yields for a sequence, and what it must yield to be worth its "
        "time: the time of a speculative round over that of a target-only round in the same "
        "minute. Below the dashed line speculation costs throughput. The line is missing where "
        "no target-only round ran; batches of the two may differ, so this shows and only the "
        "randomised blocks of the report decide.",
        queries.break_even,
        BY_REPLICA,
        width=14,
    )
    panel = panels.named(panel, {"tokens_per_round": "yielded", "needed": "break-even"})
    return panels.dashed(panel, "needed")


def throughput_by_arm() -> table.Panel:
    panel = panels.rows(
        "Throughput of each arm",
        "Tokens per second in the blocks of an experiment, by what ran and how much of it. An "
        "arm above k0 is worth its cost there, one below it is not; sums without an interval, so "
        "take the verdict from `specscope report`, which pairs the blocks.",
        queries.throughput_by_arm,
        during("first_at", "replica"),
        width=10,
    )
    return panels.in_unit(panel, "none", "blocks")


def tokens_per_round() -> timeseries.Panel:
    panel = panels.series(
        "Tokens per round",
        "Tokens that came out for a sequence in a round, by class; a target-only round gives 1. "
        "One class falling while the others hold means that the draft no longer suits it; all "
        "falling together points at the draft model or the draft length.",
        queries.tokens_per_round,
        BY_CLASS,
        width=8,
    )
    return panels.a_line_each(panel, "class")


def acceptance_by_position() -> barchart.Panel:
    panel = panels.bars(
        "Acceptance by position",
        "Chance that a round keeps its proposals up to each position. A sharp fall after some "
        "position asks for a draft that long; a low first position means that draft and target "
        "disagree from the start, and a shorter draft will not help.",
        queries.acceptance_by_position,
        BY_CLASS,
        by="position\\class",
        width=8,
    )
    return panels.spread(panel, columns="class", rows="position", values="survival")


def acceptance_rate() -> timeseries.Panel:
    panel = panels.series(
        "Acceptance rate (never decides)",
        "Share of proposed tokens that were kept. Useful to see that something changed; whether "
        "speculation pays depends on what a round costs, so a rise here can go with a loss.",
        queries.acceptance_rate,
        BY_CLASS,
        width=8,
    )
    return panels.a_line_each(panel, "class")


def round_time() -> timeseries.Panel:
    return panels.stacked(
        "Where a round's time goes",
        "Mean time of each part of a round. Growing draft time asks for a shorter draft or a "
        "smaller drafter, growing verify time for smaller batches or a look at the context, "
        "growing idle time for a look at synchronisation. A part that some rounds cannot show "
        "is left out, and so is `other` then.",
        queries.round_time,
        BY_REPLICA,
        width=14,
    )


def round_time_by_k() -> table.Panel:
    panel = panels.rows(
        "Time of a round by draft length",
        "Mean time of a round and of its parts, by the longest draft in it, with the batch that "
        "it ran with. Where a longer draft makes the round much longer at the same batch, the "
        "extra tokens have to pay for it.",
        queries.round_time_by_k,
        BY_REPLICA,
        width=10,
    )
    return panels.in_unit(panel, "none", "k", "rounds", "batch")


def throughput() -> timeseries.Panel:
    panel = panels.series(
        "Throughput while busy",
        "Tokens that came out per second of rounds. It rises with the batch as well as with "
        "speculation, so compare it at equal load: a rise after a change of the draft length "
        "counts only where batch and context stayed.",
        queries.throughput,
        BY_REPLICA,
        width=8,
    )
    return panels.named(panel, {"tokens_per_second": "tokens per second"})


def bandwidth() -> timeseries.Panel:
    panel = panels.series(
        "Memory traffic of the verify pass",
        "Bytes that rounds had to move, by the model card, over the time of the verify pass. "
        "Near the device's own bandwidth a verify pass has room for more query tokens; far below "
        "it the pass is bound by arithmetic, and speculation has little left to win.",
        queries.bandwidth,
        BY_REPLICA,
        width=8,
    )
    return panels.named(panel, {"bandwidth": "needed by the model"})


def memory_busy() -> timeseries.Panel:
    panel = panels.series(
        "Memory busy, as the device says",
        "Share of time that the device's memory was busy. High at small batches is where "
        "speculation pays; falling while throughput holds means that arithmetic has become the "
        "limit. Empty where the driver does not let it be read; the pipeline dashboard says why.",
        queries.device,
        f"{during('sampled_at', 'replica')} AND field = 'dram_active'",
        width=8,
    )
    panel = panels.in_unit(panel, "percentunit", "value")
    return panel.display_name("${__field.labels.replica} ${__field.labels.uuid}")


def batch_and_waiting() -> timeseries.Panel:
    return panels.series(
        "Batch and queue",
        "Sequences in a round, and requests that waited meanwhile. As the batch grows the target "
        "has less to gain from speculation; with a growing queue throughput is what counts, and "
        "a draft that only helps latency should go.",
        queries.batch_and_waiting,
        BY_REPLICA,
    )


def context() -> timeseries.Panel:
    panel = panels.series(
        "Context",
        "Mean tokens in a sequence's cache when a round began, by class. Longer contexts make "
        "the verify pass dearer, and drafters with a window of their own weaker: hold it against "
        "the tokens per round of the same class.",
        queries.context,
        BY_CLASS,
    )
    return panels.a_line_each(panel, "class")


def request_latency() -> table.Panel:
    panel = panels.rows(
        "Latency of requests",
        "Quantiles over the requests that ended, by class; tpot is the time of a token after the "
        "first. Speculation can lower the median and raise the tail: a p95 that grows while the "
        "p50 falls says that some requests pay for the others.",
        queries.request_latency,
        during("ended_at", "replica", "class"),
    )
    return panels.in_unit(panel, "none", "requests")


def losses() -> table.Panel:
    panel = panels.rows(
        "Records lost",
        "Records that exist nowhere any more, and why; an empty count is a loss of unknown size. "
        "Any growth weakens every number above for that replica and time.",
        queries.losses,
        during("lost_at", "replica"),
    )
    return panels.in_unit(panel, "dateTimeAsIso", "last_at")
