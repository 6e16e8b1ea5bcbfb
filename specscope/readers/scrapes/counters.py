"""Speculation counters of vLLM, llama.cpp and TensorRT-LLM: one window per engine.

vLLM and llama.cpp share the names after the prefix. `num_drafts` counts request-rounds with
proposals. Rounds without a proposal appear only in vLLM's inter-token latency, which has one
observation per request and round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from specscope.readers.records import LONGEST_DRAFT, Arm, Finding, Record, Window

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

FAMILIES = {
    "vllm:": "vllm",
    "llamacpp:": "llama.cpp",
    "trtllm_": "tensorrt-llm",
    "lmdeploy:": "lmdeploy",
}
ENOUGH_TOKENS = 200
"""After so many tokens a drafter that works has proposed something."""

OVERCOUNT_MATTERS = 0.02
"""At most k accepted tokens per request lie behind the end of its text; below 2 % it is noise."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two scrapes, or one scrape since the start; `last` is the later one."""

    input: str
    delta: Samples
    last: Samples
    seconds: float | None


def windows(change: Change) -> Iterator[Record]:
    """One window per engine process found in the scrape."""
    for prefix, engine in FAMILIES.items():
        groups: dict[tuple[str, str], _Group] = {}
        for (name, labels), value in change.delta.items():
            if not name.startswith(prefix) or name.endswith("_created"):
                continue
            label = dict(labels)
            key = (label.get("model_name", ""), label.get("engine", ""))
            group = groups.setdefault(key, _Group(engine, _index(label.get("engine"))))
            group.add(name[len(prefix) :], label, value, change.last.get((name, labels), value))
        for key in sorted(groups):
            if groups[key].is_cut and len(groups) > 1:
                continue  # another group counts the same tokens
            yield from groups[key].records(change)


class _Group:
    def __init__(self, engine: str, index: int | None) -> None:
        self._engine, self._index = engine, index
        self._sums: dict[str, float] = defaultdict(float)
        self._gauges: dict[str, float] = defaultdict(float)
        self._positions: dict[int, float] = defaultdict(float)
        self._drafted_at: dict[int, float] = defaultdict(float)

    def add(self, name: str, label: dict[str, str], delta: float, last: float) -> None:
        position = label.get("position", label.get("token_position"))
        name = name.removesuffix("_total")
        if position is not None and position.isdigit():
            if len(position) > 4 or int(position) >= LONGEST_DRAFT:
                return
            if "drafted_tokens" in name and "per_pos" not in name:
                self._drafted_at[int(position)] += delta
            elif "accepted_tokens" in name:
                self._positions[int(position)] += delta
            return
        self._sums[name] += delta
        self._gauges[name] += last

    @property
    def is_cut(self) -> bool:
        """Whether the scrape has only accepted tokens by position."""
        return bool(self._positions) and not self._sums

    def records(self, change: Change) -> Iterator[Record]:
        proposed = self._count("spec_decode_num_draft_tokens")
        accepted = self._count("spec_decode_num_accepted_tokens")
        drafts = self._count("spec_decode_num_drafts")
        v0 = self._count("spec_decode_num_emitted_tokens") if drafts is None else None
        if v0 is not None and proposed:
            yield from self._v0(change, proposed, v0)
            return
        if drafts is None and self._drafted_at:
            drafts = round(self._drafted_at[min(self._drafted_at)])
        generated = self._first("generation_tokens", "tokens_predicted")
        if (
            drafts is None
            and proposed is None
            and not generated
            and not self.is_cut
            and "num_requests_running" not in self._gauges
        ):
            return
        k = max(self._positions) + 1 if self._positions else None
        if proposed is None and k == 1:
            proposed = drafts  # each draft holds at least one token and at most one
        at = tuple(round(self._positions[p]) for p in range(k)) if k else None
        offset = 1 if self._drafted_at and 0 not in self._drafted_at and at else 0
        at = at[offset:] if at else None
        k = k - offset if k else None
        if self.is_cut and at:
            accepted = sum(at)
        tok_s = generated / change.seconds if generated and change.seconds else None
        yield Window(
            change.input,
            self._engine,
            grain="counter",
            seconds=change.seconds,
            engine_index=self._index,
            k=k,
            drafts=drafts,
            proposed=proposed,
            accepted=accepted,
            generated=generated,
            counted_at=at if drafts else None,
            running=self._gauge("num_requests_running", "requests_processing"),
            waiting=self._gauge("num_requests_waiting", "requests_deferred"),
            throughput_tok_s=tok_s,
            round_ms=self._round_ms(generated, accepted),
        )
        if drafts == 0 and generated and generated >= ENOUGH_TOKENS:
            yield Finding(
                "DRAFTER_NEVER_USED",
                f"{generated:.0f} tokens were generated and nothing was ever proposed",
                {"generated": round(generated)},
            )
        yield from self._arm(change, drafts)
        yield from self._skipped(drafts, generated)
        yield from self._ends(k, drafts, accepted, generated)

    def _arm(self, change: Change, drafts: int | None) -> Iterator[Record]:
        """The scrape as an arm with its time per output token; without counters it never
        speculated."""
        tpot = self._mean("request_time_per_output_token_seconds")
        if not tpot:
            return
        metrics = {
            "tpot_ms": 1000 * tpot,
            "output_tokens": self._mean("request_generation_tokens"),
            "prompt_tokens": self._mean("request_prompt_tokens"),
        }
        yield Arm(
            change.input,
            Path(change.input).name,
            "speculative" if drafts is not None else "target_only",
            max(self._positions) + 1 if self._positions else None,
            {"engine": self._engine},
            {name: value for name, value in metrics.items() if value},
            {"scope": "inputs"},
        )

    def _mean(self, name: str) -> float | None:
        count = self._sums.get(f"{name}_count")
        return self._sums.get(f"{name}_sum", 0.0) / count if count else None

    def _v0(self, change: Change, proposed: int, emitted: int) -> Iterator[Record]:
        """vLLM V0: accepted counts matches behind the mismatch; k follows from the efficiency.

        efficiency = emitted / (rounds (k + 1)) and rounds = proposed / k.
        """
        efficiency = self._gauges.get("spec_decode_efficiency", 0.0)
        share = efficiency * proposed / emitted if emitted else 0.0
        k = round(share / (1 - share)) if 0 < share < 1 else 0
        rounds = proposed // k if k and proposed % k == 0 else None
        yield Finding(
            "V0_ACCEPTANCE_NOT_PREFIX", "V0 counters count matches behind the first mismatch"
        )
        yield Finding("V0_CUMULATIVE", "V0 counters")
        yield Window(
            change.input,
            self._engine,
            grain="counter",
            seconds=change.seconds,
            k=k or None,
            drafts=rounds,
            proposed=proposed,
            accepted=emitted - rounds if rounds is not None else None,
            came_out=emitted,
            running=self._gauge("num_requests_running"),
            waiting=self._gauge("num_requests_waiting"),
        )

    def _round_ms(self, generated: float | None, accepted: int | None) -> float | None:
        observed = self._sums.get("inter_token_latency_seconds_count")
        if observed:
            return 1000 * self._sums["inter_token_latency_seconds_sum"] / observed
        seconds = self._sums.get("tokens_predicted_seconds")
        steps = (generated or 0) - (accepted or 0)
        return 1000 * seconds / steps if seconds and steps > 0 else None

    def _skipped(self, drafts: int | None, generated: float | None) -> Iterator[Record]:
        rounds = self._count("inter_token_latency_seconds_count")
        first = self._count("time_to_first_token_seconds_count")
        if (
            not rounds
            or not drafts
            or generated is None
            or first is None
            or rounds <= 1.02 * drafts
        ):
            return
        true = (generated - first) / rounds
        yield Finding(
            "SKIPPED_ROUNDS",
            f"{rounds - drafts} of {rounds} request-rounds proposed nothing: {true:.3f} tokens per "
            "round over all of them",
            {"rounds": rounds, "drafts": drafts, "tokens_per_round": round(true, 4)},
        )

    def _ends(
        self, k: int | None, drafts: int | None, accepted: int | None, generated: float | None
    ) -> Iterator[Record]:
        requests = self._count("request_success") or self._count("request_generation_tokens_count")
        if not (k and drafts and requests and generated) or self._engine != "vllm":
            return
        bound = k * requests / generated
        if bound > OVERCOUNT_MATTERS and accepted:
            yield Finding(
                "EOS_OVERCOUNT",
                f"outputs average {generated / requests:.0f} tokens: accepted tokens behind "
                "the end "
                f"may inflate tokens per round by up to {bound:.1%}",
                {"requests": requests, "k": k, "bound": round(bound, 4)},
            )

    def _count(self, name: str) -> int | None:
        value = self._sums.get(name)
        return round(value) if value is not None else None

    def _first(self, *names: str) -> float | None:
        return next((self._sums[name] for name in names if name in self._sums), None)

    def _gauge(self, *names: str) -> int | None:
        return next((round(self._gauges[name]) for name in names if name in self._gauges), None)


def _index(label: str | None) -> int | None:
    return int(label) if label and label.isdigit() and len(label) < 10 else None
