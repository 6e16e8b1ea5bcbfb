"""The SQL of every quantity: one function each, shared by dashboards and report.

A function takes the condition on rows as SQL text, because Grafana and the report write time ranges
differently. It returns the whole statement. The first paragraph of its docstring ends with the
unit, and the second names the table and the time column for conditions.
"""

from specscope.queries.assessments import evidence_state, replays, verdict_history, verdicts
from specscope.queries.blocks import block_classes, block_parts, blocks, throughput_by_arm
from specscope.queries.copies import output_count, outputs
from specscope.queries.delivery import (
    EVERYTHING,
    boots,
    endings,
    events,
    guardrails,
    losses,
    losses_by_minute,
    policies,
    reconciliation,
    silence,
    starts,
    stored_rounds,
    stored_rows,
)
from specscope.queries.pooled import block_count, pooled_blocks, pooled_classes, pooled_parts
from specscope.queries.requests import ended_requests, request_latency, residence
from specscope.queries.rounds import (
    PARTS,
    arms_drafted,
    bandwidth,
    batch_and_waiting,
    break_even,
    classes,
    context,
    device,
    device_summary,
    engine_sums,
    policies_followed,
    replicas,
    round_time,
    round_time_by_k,
    throttling,
    throughput,
)
from specscope.queries.shapes import round_shapes
from specscope.queries.speculation import (
    acceptance_by_position,
    acceptance_rate,
    accepted_lengths,
    tokens_by_class,
    tokens_per_round,
)

__all__ = [
    "EVERYTHING",
    "PARTS",
    "acceptance_by_position",
    "acceptance_rate",
    "accepted_lengths",
    "arms_drafted",
    "bandwidth",
    "batch_and_waiting",
    "block_classes",
    "block_count",
    "block_parts",
    "blocks",
    "boots",
    "break_even",
    "classes",
    "context",
    "device",
    "device_summary",
    "ended_requests",
    "endings",
    "engine_sums",
    "events",
    "evidence_state",
    "guardrails",
    "losses",
    "losses_by_minute",
    "output_count",
    "outputs",
    "policies",
    "policies_followed",
    "pooled_blocks",
    "pooled_classes",
    "pooled_parts",
    "reconciliation",
    "replays",
    "replicas",
    "request_latency",
    "residence",
    "round_shapes",
    "round_time",
    "round_time_by_k",
    "silence",
    "starts",
    "stored_rounds",
    "stored_rows",
    "throttling",
    "throughput",
    "throughput_by_arm",
    "tokens_by_class",
    "tokens_per_round",
    "verdict_history",
    "verdicts",
]  # fmt: skip
