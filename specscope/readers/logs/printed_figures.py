"""Figures that programs print with their names: `key: value` and `key=value`.

The blocks of `vllm bench serve`, SGLang's bench_serving and trtllm-bench; the summaries of vLLM's
`spec_decode.py` and SGLang's question benchmarks; lines of oMLX and of llama.cpp's MTP scripts that
count a request's rounds. One grammar reads the figures. A group of neighbouring figures is a
benchmark result, counts of rounds, or a single length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from specscope.readers.logs.lines import INTEGER, REAL, plain
from specscope.readers.records import LONGEST_DRAFT, Finding, Record, Window
from specscope.readers.results.bench_json import flat
from specscope.readers.results.client_usage import drafted
from specscope.readers.source import arm_name
from specscope.readers.tables import headers
from specscope.readers.tables.cells import quantity
from specscope.readers.tables.csv_file import name_of

_PAIR = re.compile(
    r"(?P<key>[A-Za-z#\[][\w /().%\[\]#-]{0,60}?)\s{0,40}(?P<mark>[:=])\s{0,60}"
    r"(?P<value>-?\d[\d,]{0,15}(?:\.\d{1,15})?)(?:/(?P<whole>\d{1,15}))?(?![\w.])"
)
_BENCH = {
    "successful requests": "completed",
    "number of requests": "completed",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # as older SGLang spells it
    "number of concurrent requests": "max_concurrency",
    "request rate configured (rps)": "request_rate",
    "benchmark duration (s)": "duration",
    "request throughput (req/s)": "request_throughput",
    "request throughput (req/sec)": "request_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "total output throughput (tokens/sec)": "output_throughput",
    "mean ttft (ms)": "mean_ttft_ms",
    "average time-to-first-token [ttft] (ms)": "mean_ttft_ms",
    "mean tpot (ms)": "mean_tpot_ms",
    "average time-per-output-token [tpot] (ms)": "mean_tpot_ms",
    "median tpot (ms)": "median_tpot_ms",
    "mean itl (ms)": "mean_itl_ms",
    "mean e2el (ms)": "mean_e2el_ms",
    "average request latency (ms)": "mean_e2el_ms",
    "mean e2e latency (ms)": "mean_e2e_latency_ms",
    "acceptance rate (%)": "spec_decode_acceptance_rate",
    "[al] average": "accept_length",
    "[ar] average": "accept_length",  # as versions of 2025 call it
    "[dar] average": "draft_acceptance_rate",
}
"""Names as the benchmarks print them, and those of their JSON."""

_COUNTS = (
    (
        "spec_decode_num_drafts",
        r"num_drafts|drafts|number of draft(?:s| proposals)|cycles|rounds|steps",
    ),
    (
        "spec_decode_draft_tokens",
        r"num_draft_tokens|number of draft tokens(?: generated)?|drafted|draft tokens|proposed"
        r"|proposals",
    ),
    (
        "spec_decode_accepted_tokens",
        r"num_accepted_tokens|(?:number of )?accepted tokens|accepted_drafts?|accepted",
    ),
    ("draft_acceptance_rate", r"acceptance_rate"),
    ("accept_length", r"accept(?:ance|ed)?[ _]len(?:gth)?"),
    (
        "total_output_tokens",
        r"total_num_output_tokens|total output tokens|total generated tokens"
        r"|num generation tokens|generated|predicted",
    ),
    ("came_out", r"emitted"),
    ("width", r"block_size"),
    ("throughput", r"throughput"),
)
_OF_METRIC = {
    "drafts": "spec_decode_num_drafts", "proposed": "spec_decode_draft_tokens",
    "accepted": "spec_decode_accepted_tokens", "mean_length": "accept_length",
    "acceptance_rate": "draft_acceptance_rate", "output_tokens": "total_output_tokens",
    "throughput_tok_s": "throughput",
}  # fmt: skip
_PATTERNS = tuple(
    (field, re.compile(rf"(?:^|[^\w/])(?:{names})$", re.IGNORECASE)) for field, names in _COUNTS
)
_POSITION = re.compile(
    r"(?:(?P<percent>\bPosition )|acceptance (?:rate )?at token )(?P<at>\d{1,3})"
    r"\s*[:=]\s+(?P<rate>\d{1,3}(?:\.\d{1,9})?)(?![\w.])"
)
_REQUEST = re.compile(
    r"(\S+)\s+pred=\s*(\d{1,9})\s+draft=\s*(\d{1,9})\s+acc=\s*(\d{1,9})\s+rate=\S+\s+tok/s=\s*([\d.]{1,12})"
)
_REPLY = re.compile(rf"Chat completion: {INTEGER} tokens in {REAL}s \({REAL} tok/s\)")
_OFFLINE = re.compile(r"Throughput: ([\d.]{1,15}) requests/s, .*?([\d.]{1,15}) output tokens/s\s*$")
"""`vllm bench throughput`, since it tells output tokens from all."""

_BEHIND = re.compile(r"([\d,]{1,15}) (accepted|drafted|proposed|steps|rounds|drafts)\b")
"""`68,159 accepted / 281,960 drafted / 40,280 steps`."""

_HEADERS = ("Serving Benchmark Result", "= REQUEST DETAILS")
_TRTLLM = ("Total Output Throughput (tokens/sec)", "= REQUEST DETAILS", "= DECODING STATISTICS")
_OTHERS = ("metrics:", "draft acceptance", "normalized", "Total input", "Total Token throughput")
"""Lines that other parsers read, and figures of another kind."""

DRAFTS, PROPOSED, ACCEPTED, LENGTH, GENERATED = (
    "spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens",
    "accept_length", "total_output_tokens",
)  # fmt: skip
PERCENT = 100
ROUNDED = 0.0051
"""Rates at a token are printed with two decimals."""

ONE_OFF = 0.03
"""A first token from the prompt's pass, and a length of two decimals."""


class PrintedFigures:
    """One record per group of figures; a repeated figure begins the next group."""

    name = "bench-text"
    gates = (
        b"Serving Benchmark Result", b"Output token throughput (tok/s):",
        b"Total Output Throughput (tokens/sec):", b" output tokens/s", b"= DECODING STATISTICS",
        b"num_accepted_tokens:", b"ccept length:", b"mean acceptance length:",
        b"token/s, Acceptance length:", b"umber of accepted tokens:", b"accepted_drafts", b"pred=",
        b" accepted / ", b" rounds=", b"Chat completion: ", b" proposed=", b" accepted=",
    )  # fmt: skip
    marks = (
        *gates, *(header.encode() for header in (*_HEADERS, *_TRTLLM)),
        b"requests:", b"concurrency:", b"(RPS):", b"(s):", b"enerated tokens:", b"hroughput (",
        b"latency (", b"] AVERAGE", b"(ms):", b"cceptance ", b"Accept length:", b"Drafts:",
        b"raft tokens", b"ccepted tokens:", b"Position ", b"num_drafts", b"num_draft_tokens",
        b"roposals:", b"cycles=", b"drafted=", b"emitted=", b"hroughput:", b"output_tokens:",
        b"output tokens:", b"generation tokens:", b"t token ", b"acceptance_rate=",
    )  # fmt: skip

    def __init__(self, input: str) -> None:
        self._input = input
        self._found: dict[str, float] = {}
        self._positions: list[float] = []
        self._percent = False
        self._engine: str | None = None
        self._label: str | None = None
        self._results = self._lines = 0

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        text = plain(line)
        if any(mark in text for mark in _TRTLLM):
            self._engine = "tensorrt-llm"
        if any(header in text for header in _HEADERS):
            ended = list(self.finish())
            self._engine = "tensorrt-llm" if _TRTLLM[1] in text else None
            return ended
        if offline := _OFFLINE.search(text):
            requests, tokens = map(float, offline.groups())
            return self._result({"output_throughput": tokens, "request_throughput": requests})
        if request := _REQUEST.search(text):
            return [_request(self._input, *request.groups())]
        if reply := _REPLY.search(text):
            return self._replied(*map(float, reply.groups()))
        if torn or any(word in text for word in _OTHERS):
            return ()
        if position := _POSITION.search(text):
            if int(position["at"]) == len(self._positions) < LONGEST_DRAFT:
                self._percent = bool(position["percent"])
                self._positions.append(float(position["rate"]))
            return ()
        return self._taken(_figures(text))

    def _taken(self, figures: dict[str, float]) -> list[Record]:
        counts = figures.keys() & {ACCEPTED, LENGTH, "draft_acceptance_rate"}
        whole = DRAFTS in figures and bool(counts)  # a line that is a window of its own
        ended = list(self.finish()) if whole or figures.keys() & self._found.keys() else []
        self._found.update(figures)
        if whole:
            self._lines += 1
            self._label = f"line {self._lines}"
        return ended

    def _replied(self, tokens: float, seconds: float, speed: float) -> list[Record]:
        """Add the speed that oMLX prints for the reply with the counted rounds."""
        if not self._found.get(DRAFTS):
            counts = None if not self._found else (0, None)
            return [drafted(self._input, "omlx", round(tokens), speed, counts)]
        self._found |= {GENERATED: tokens, "seconds": seconds, "throughput": speed}
        return list(self.finish())

    def finish(self) -> Iterator[Record]:
        """The group of figures read so far."""
        found, positions, label = self._found, self._positions, self._label
        self._found, self._positions, self._label = {}, [], None
        percent = 100 if self._percent else 1
        rates = [rate / percent for rate in positions]
        if "output_throughput" in found or "mean_tpot_ms" in found:
            found.pop("throughput", None)
            yield from self._result({**found, **({_RATES: rates} if rates else {})})
        elif found.get(DRAFTS) and found.get(PROPOSED) == 0:
            yield from _nothing_proposed(self._input, found[DRAFTS])
        elif DRAFTS in found and found.keys() & {ACCEPTED, LENGTH, "draft_acceptance_rate"}:
            yield _counted(self._input, found, rates, label)
        elif DRAFTS not in found and _agrees(found):
            self._lines += 1
            yield Window(  # never summed: counts of one engine may be those since its start
                self._input,
                "unknown",
                grain="run",
                label=f"line {self._lines}",
                proposed=round(found[PROPOSED]),
                accepted=round(found[ACCEPTED]),
            )
        elif LENGTH in found and "throughput" in found:
            found["output_throughput"] = found.pop("throughput")
            if found[LENGTH] <= 1:  # the script prints 1 where the engine never verified
                found.pop(LENGTH)
            yield from self._result(dict(found))
        elif found.get(LENGTH, 0) > 1:
            engine = self._engine or "unknown"
            yield Window(self._input, engine, grain="run", printed_length=found[LENGTH])

    def _result(self, result: dict[str, object]) -> list[Record]:
        """The arm of a whole result; several of one file are runs of their own."""
        self._results += 1
        again = f" {self._results}" if self._results > 1 and "max_concurrency" not in result else ""
        return list(flat(self._input, arm_name(self._input) + again, result, self._engine))


_RATES = "spec_decode_per_position_acceptance_rates"


def _figures(text: str) -> dict[str, float]:
    """The known figures of a line, by the names that results have as JSON."""
    if len(_BEHIND.findall(text)) > 2:
        text = _BEHIND.sub(r"\2=\1", text)
    found: dict[str, float] = {}
    by_words: dict[str, float] = {}
    for key, mark, value, whole in _PAIR.findall(text):
        number = quantity(value)
        if number is None or number.value < 0:
            continue
        field = _field(key.strip())
        if field is not None:
            found.setdefault(field, number.value)
        elif mark == "=" and (field := _OF_METRIC.get(headers.metric_of(name_of(key)) or "")):
            by_words.setdefault(field, number.value)
        if whole and field == ACCEPTED:
            found.setdefault(PROPOSED, float(whole))
    for figures in (found, by_words):
        rate = figures.get("draft_acceptance_rate", 0.0)
        if 1 < rate <= PERCENT:
            figures["draft_acceptance_rate"] = rate / PERCENT
    # A name that a table would use is read beside a number of rounds, by which it can be checked.
    return by_words | found if DRAFTS in by_words | found else found


def _nothing_proposed(input: str, rounds: float) -> Iterator[Record]:
    """Rounds of an engine that never drafted: no rate follows, 0 % least of all."""
    yield Finding(
        "DRAFTER_NEVER_USED",
        f"{rounds:.0f} rounds and nothing proposed: its rate is unknown, not 0",
        {"rounds": round(rounds)},
    )
    yield Window(input, "unknown", grain="run", drafts=0, proposed=0, accepted=0)


def _agrees(found: dict[str, float]) -> bool:
    """Whether counts without a number of rounds are those of the rate beside them."""
    accepted, proposed, rate = map(found.get, (ACCEPTED, PROPOSED, "draft_acceptance_rate"))
    known = accepted is not None and bool(proposed) and rate is not None
    return known and abs(accepted / proposed - rate) < ROUNDED  # type: ignore[operator]


def _field(key: str) -> str | None:
    known = _BENCH.get(key.lower())
    return known or next((field for field, names in _PATTERNS if names.search(key)), None)


def _counted(input: str, found: dict[str, float], rates: list[float], label: str | None) -> Window:
    """The window of counted rounds. Rounds and generated tokens show whether a length excludes the
    token after the draft."""
    drafts, accepted, proposed = found[DRAFTS], found.get(ACCEPTED), found.get(PROPOSED)
    generated = found.get(GENERATED, found.get("came_out"))
    length = found.get(LENGTH)
    if length is not None and accepted is None and generated:
        fits = [n for n in (length, length + 1) if abs(n * drafts / generated - 1) < ONE_OFF]
        length = fits[0] if fits else None
    k = proposed // drafts if proposed and drafts and proposed % drafts == 0 else None
    k = found["width"] - 1 if found.get("width", 0) > 1 else k
    positions = _scaled(rates, accepted / drafts) if drafts and accepted is not None else None
    omlx, seconds = "width" in found, found.get("seconds")
    came_out = (
        found.get("came_out") if omlx else length * drafts if length and not accepted else None
    )
    return Window(
        input,
        "omlx" if omlx else "vllm" if proposed is not None and rates else "unknown",
        grain="request" if omlx else "run",
        label=None if omlx else label,
        k=round(k) if k else (len(rates) or None),
        drafts=round(drafts),
        proposed=_whole(proposed),
        accepted=_whole(accepted),
        came_out=round(came_out) if came_out else None,
        generated=generated,
        seconds=seconds,
        printed_positions=positions,
        printed_rate=found.get("draft_acceptance_rate"),
        printed_length=length,
        throughput_tok_s=found.get("throughput"),
        round_ms=1000 * seconds / drafts if seconds and drafts else None,
        estimated=("position_rates",) if positions else (),
        tolerance=0.01 if omlx else 0.05,
    )


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value == int(value) else None


def _scaled(rates: list[float], kept: float) -> tuple[float, ...] | None:
    """Rates with two decimals, scaled to the sum of the counts; None if they contradict them."""
    total = sum(rates)
    if not rates or total <= 0 or abs(total - kept) > ROUNDED * len(rates):
        return None
    return tuple(min(rate * kept / total, 1.0) for rate in rates)


def _request(
    input: str, name: str, tokens: str, proposed: str, accepted: str, tok_s: str
) -> Window:
    speed = quantity(tok_s)
    counts = (int(accepted), int(proposed)) if int(proposed) else None
    window = drafted(input, "llama.cpp", int(tokens), speed.value if speed else None, counts)
    return replace(window, label=name)
