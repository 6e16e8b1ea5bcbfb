"""Records of the ring, each column declared once, and the layout in a ring's header.

Measures that the store keeps unchanged come from `records.RoundMeasures`; on the ring, an unknown
time is NaN. A ring's header names its columns, so hook and sidecar of different versions are
compatible. A column that the reader does not know is dropped. A column that the writer does not
know reads as unknown (NaN, or the largest value of its type).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specscope_hook.columns import Column, column, columns
from specscope_hook.errors import CorruptRing
from specscope_hook.records import RoundMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRound(RoundMeasures):
    """One round of the running batch on the ring: scalars, then one value per sequence."""

    policy: int = column("u32", "1", "policy in force; 0 where none is")
    pair: int = column(
        "u32", "1", "pair of blocks that the round belongs to; 0 outside an experiment"
    )
    block_age_ms: int = column("u32", "ms", "since the block began; 0 outside an experiment")
    arm: int = column(
        "u8", "1", "arm that ran, by the ring's dictionary; 255 outside an experiment"
    )
    timing_source: int = column("u8", "1", "0 host, 1 cuda, 2 engine")
    requests: list[int] = column("u64[]", "1", "salted hash of each request's id")
    contexts: list[int] = column("u32[]", "tokens", "in each KV cache when the round began")
    classes: list[int] = column(
        "u8[]", "1", "class of each, by the ring's dictionary; 255 is `other`"
    )
    k: list[int] = column("u8[]", "tokens", "draft length of each; 0 is target-only")
    accepted: list[int] = column(
        "u8[]", "tokens", "leading proposals kept; correction or bonus not counted"
    )
    emitted: list[int] = column(
        "u8[]", "tokens", "really came out; accepted + 1, fewer where the text ended inside"
    )
    ends: list[int] = column("u8[]", "1", "how each ended in the round, see End")
    verified: list[int] = column(
        "u8[]", "tokens", "of each draft, checked by the target; 255 where all of it was"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRequest:
    """A request, written at admission and again in full at its end: the reader keeps no state."""

    request: int = column("u64", "1", "salted hash of the request's id")
    session: int = column("u64", "1", "salted hash of the session; 0 where the client named none")
    admitted_at: int = column("time", "ns", "when the engine took it in")
    ended_at: int = column("time", "ns", "when it ended; 0 at admission")
    digest: int = column("u64", "1", "of the output token ids; 0 where not known")
    content: int = column(
        "u64",
        "1",
        "salted digest of the prompt and all that shapes its output, where these decide the output "
        "(greedy or coupled sampling); 0 where they do not or are not known",
    )
    policy: int = column("u32", "1", "policy in force at admission; 0 where none was")
    pair: int = column("u32", "1", "pair at admission; 0 outside an experiment")
    last_pair: int = column("u32", "1", "pair at the end; 0 outside an experiment")
    prompt_tokens: int = column("u32", "tokens", "length of the prompt")
    cached_tokens: int = column(
        "u32", "tokens", "of these found in a prefix cache; largest value where not known"
    )
    requested_output: int = column(
        "u32", "tokens", "most that the client asked for; largest value where not said"
    )
    output_tokens: int = column("u32", "tokens", "came out; 0 at admission")
    preemptions: int = column("u32", "1", "times it was put back into the queue")
    temperature: float = column("f32", "1", "of sampling; 0 is greedy")
    top_p: float = column("f32", "1", "of nucleus sampling; 1 is off")
    queue_ms: float = column(
        "f32", "ms", "from arrival to the first work on it; NaN where not known"
    )
    prefill_ms: float = column("f32", "ms", "of prompt work; NaN where not known")
    ttft_ms: float = column(
        "f32", "ms", "from arrival to the first token; NaN where there was none"
    )
    decode_ms: float = column(
        "f32", "ms", "from the first token to the last; NaN where there was none"
    )
    e2e_ms: float = column("f32", "ms", "from arrival to the end; NaN at admission")
    class_: int = column("u8", "1", "by the ring's dictionary; 255 is `other`")
    adapter: int = column("u8", "1", "LoRA adapter by the ring's dictionary; 255 is none")
    arm: int = column(
        "u8", "1", "arm at admission, by the ring's dictionary; 255 outside an experiment"
    )
    guided: int = column("u8", "1", "1 where a grammar constrains the output")
    reason: int = column("u8", "1", "how it ended, see End; 0 at admission")


# --- the layout of a ring's records ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Columns of a ring's records in the order of their bytes: scalars, then arrays.

    Types are those of `columns`, without `?`.
    """

    round: tuple[Column, ...]
    request: tuple[Column, ...]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> RecordLayout:
        """The layout in a ring's header; version 2 without one.

        Raises CorruptRing if the header does not name columns and their types.
        """
        named = header.get("layout", _VERSION_2)
        try:
            return cls(*(_parsed(named[record]) for record in ("round", "request")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRing(f"its layout cannot be read: {error}") from error

    def as_json(self) -> dict[str, str]:
        """The layout as JSON for a ring's header."""
        return {
            "round": " ".join(f"{column.name}:{column.type}" for column in self.round),
            "request": " ".join(f"{column.name}:{column.type}" for column in self.request),
        }

    @property
    def hash(self) -> str:
        """12 hexadecimal digits; equal layouts have equal hashes."""
        text = json.dumps(self.as_json(), sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=6).hexdigest()

    def unknown(self) -> list[str]:
        """Columns of the ring that this version does not know and drops."""
        known = {column.name for column in (*LAYOUT.round, *LAYOUT.request)}
        return [c.name for c in (*self.round, *self.request) if c.name not in known]


TYPES = ("u8", "u16", "u32", "u64", "i16", "i64", "f32", "f64", "time")
_MOST_COLUMNS = 256


def _parsed(text: str) -> tuple[Column, ...]:
    pairs = [word.partition(":") for word in text.split()]
    read = [Column(name, type_, "1", "") for name, _, type_ in pairs]
    if len(read) > _MOST_COLUMNS or len({each.name for each in read}) != len(read):
        raise ValueError("too many columns, or one twice")
    if wrong := [each for each in read if each.base not in TYPES]:
        raise ValueError(f"column {wrong[0].name!r} of type {wrong[0].type!r}")
    return _in_order(read)


def _declared(record: type[Any]) -> tuple[Column, ...]:
    return _in_order([c._replace(type=c.type.rstrip("?")) for c in columns(record)])


def _in_order(declared: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(sorted(declared, key=lambda each: each.repeated))


LAYOUT = RecordLayout(_declared(RingRound), _declared(RingRequest))
"""Of the rings that this version writes."""

_VERSION_2 = {  # whose header named no columns
    "round": "started_at:time policy:u32 pair:u32 block_age_ms:u32 waiting:u32 wall_us:f32 "
    "draft_us:f32 verify_us:f32 sample_us:f32 idle_us:f32 catchup_us:f32 prefill_us:f32 "
    "prefill_tokens:u32 padded_tokens:u32 invalid:u32 preempted:u16 arm:u8 timing_source:u8 "
    "requests:u64[] contexts:u32[] classes:u8[] k:u8[] accepted:u8[] emitted:u8[] ends:u8[]",
    "request": "request:u64 session:u64 admitted_at:time ended_at:time digest:u64 content:u64 "
    "policy:u32 pair:u32 last_pair:u32 prompt_tokens:u32 cached_tokens:u32 "
    "requested_output:u32 output_tokens:u32 preemptions:u32 temperature:f32 top_p:f32 "
    "queue_ms:f32 prefill_ms:f32 ttft_ms:f32 decode_ms:f32 e2e_ms:f32 class_:u8 adapter:u8 "
    "arm:u8 guided:u8 reason:u8",
}
