"""A report with one of everything, built by hand."""

from dataclasses import replace
from datetime import UTC, datetime

from specscope.report.model import (
    Accounting,
    ArmRow,
    CauseOddsRow,
    CauseRow,
    LossCauses,
    LossRow,
    OutputRow,
    RatioRow,
    ReasonRow,
    ReplicaRow,
    Report,
    SegmentRow,
    StoryRow,
)

WHEN = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def an_arm(k, speedup=None, spread=0.05, **changes):
    arm = ArmRow(
        arm=f"k{k}",
        k=k,
        pairs=20,
        batch=1.0,
        tokens_per_round=1.0 + 0.4 * k,
        tokens_per_second=180.0 * (speedup or 1.0),
        speedup=speedup,
        low=None if speedup is None else speedup - spread,
        high=None if speedup is None else speedup + spread,
        chunk_gap_p95_ms=7.5,
        ms_per_token={"draft": 0.4 * k, "verify": 4.0, "sample": 0.3, "idle": 0.1},
        survival=[0.8**j for j in range(1, k + 1)],
        at_risk=[1000 // j for j in range(1, k + 1)],
    )
    return replace(arm, **changes)


def a_segment(label="sql", action="keep", k=4, **changes):
    arms = [an_arm(0), an_arm(2, 1.3), an_arm(4, 1.5 if action == "keep" else 0.8)]
    segment = SegmentRow(
        epoch="e1",
        current=None,
        pairs=24,
        pairs_needed=None,
        primary=None,
        cause_odds=(),
        name=f"{label}, light",
        label=label,
        context="0-1k",
        output="17-64",
        load="1",
        action=action,
        k=k,
        arm=None if k is None else f"k{k}",
        grade="measured",
        confidence="high",
        reasons=[ReasonRow("rivals", "k4", {"arms": ["k2"]}, "k2 cannot be told from k4")],
        arms=arms,
    )
    return replace(segment, **changes)


CAUSE = "primary cause: draft cost; without it k4 would run at 1.40 (draft takes 40% of the time)"


def a_loss():
    """Why k4 loses: with a free draft it would gain, with a cheaper verify pass not."""
    return {
        "reasons": [
            ReasonRow("all_lose", None, {}, "all lose"),
            ReasonRow("cause", "k4", {}, CAUSE),
        ],
        "primary": "draft_cost",
        "cause_odds": [CauseOddsRow("draft_cost", 0.97, 1.4)],
        "causes": [
            LossCauses(
                "k4",
                0.8,
                "draft_cost",
                [CauseOddsRow("draft_cost", 0.97, 1.4)],
                [
                    CauseRow("draft_cost", 1.4, True, "draft takes 40% of the time"),
                    CauseRow("verify_cost", 0.9, False, "verify takes 1.2 ms a sequence"),
                ],
                {"draft_placement": ["boot.gpu_type"], "overhead_bound": ["boot.gpu_type"]},
            )
        ],
    }


def a_report(**changes):
    story = StoryRow(
        load="heavy",
        switches=[RatioRow(2, 1.02, 0.99, 1.05), RatioRow(4, 0.98, 0.95, 1.01)],
        naive_k=4,
        best_k=2,
        gate=RatioRow(None, 1.16, 1.12, 1.2),
        gain=RatioRow(None, 1.14, 1.1, 1.18),
        table={"sql": 4, "prose": 0},
    )
    report = Report(
        title="Does speculative decoding pay?",
        created_at=WHEN,
        since=WHEN,
        until=WHEN,
        headline="Speculation pays for 1 of 2 kinds of traffic here.",
        global_action="route selectively",
        still_needed=["about 20 pairs in all of json, light"],
        segments=[a_segment(), a_segment("prose", "disable", None, **a_loss())],
        stories=[story],
        replicas=[ReplicaRow("demo", "reference 0.1.0", "target", "draft", "CPU", WHEN)],
        losses=[LossRow("demo", "round", "ring_full", 3, "the newest records were dropped")],
        accounting=Accounting(recorded=1003, stored=1000, lost=3),
        outputs_compared=100,
        outputs_differing=0,
        outputs_state="equal",
        outputs=[OutputRow("sql", "k4", "equal", 100, 0, 20, 0, 0.0, -0.16, 0.04)],
        would_change=["a cheaper draft would make prose, light pay"],
        findings=["a finding"],
        notes=["a note"],
    )
    return replace(report, **changes)
