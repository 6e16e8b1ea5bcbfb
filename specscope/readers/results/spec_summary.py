"""What benchmark scripts print of speculation at their end, as people paste it.

vLLM's `spec_decode.py` (`num_drafts: 4687`, `acceptance at token 0: 0.74`), SGLang's
`bench_sglang_eagle.py` (`#questions: 80, Throughput: 378.57 token/s, Acceptance length: 5.39`),
evaluation scripts (`Average Accept length: 1.04`), and per-request lines of llama.cpp's MTP scripts
(`code_cpp  pred= 192 draft= 171 acc= 134 rate=0.784 tok/s=17.8`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import plain
from specscope.readers.records import LONGEST_DRAFT, Record, Window
from specscope.readers.results.bench_json import flat
from specscope.readers.source import arm_name
from specscope.readers.tables.cells import quantity

_VALUE = r"\s*[:=]\s*(-?[\d,]{1,15}(?:\.\d{1,15})?)(?![\w.])"
_KEYS = {
    "drafts": r"(?:num_drafts|number of draft(?:s| proposals)|cycles|rounds)",
    "proposed": r"(?:num_draft_tokens|number of draft tokens(?: generated)?|drafted|draft tokens)",
    "accepted": r"(?:num_accepted_tokens|(?:number of )?accepted tokens|accepted_drafts)",
    "length": r"(?:(?:mean|average|avg) )?accept(?:ance|ed)?[ _]len(?:gth)?",
    "generated": r"(?:total_num_output_tokens|total output tokens|num generation tokens|emitted)",
    "tok_s": r"(?:average )?(?:output )?throughput",
}
_FIGURES = {
    name: re.compile(rf"(?:^|[^\w\"'/]){key}{_VALUE}", re.IGNORECASE) for name, key in _KEYS.items()
}
_POSITION = re.compile(rf"acceptance (?:rate )?at token (\d{{1,3}}){_VALUE}", re.IGNORECASE)
_REQUEST = re.compile(
    r"(\S+)\s+pred=\s*(\d{1,9})\s+draft=\s*(\d{1,9})\s+acc=\s*(\d{1,9})\s+rate=\S+\s+tok/s=\s*([\d.]{1,12})"
)
_COUNTED_WORDS = re.compile(
    r"([\d,]{1,15}) (accepted|drafted|proposed|steps|rounds|drafts)\b", re.IGNORECASE
)
_OF_WORD = {
    "accepted": "accepted", "drafted": "proposed", "proposed": "proposed",
    "steps": "drafts", "rounds": "drafts", "drafts": "drafts",
}  # fmt: skip
"""`68,159 accepted / 281,960 drafted / 40,280 steps`."""

_OTHERS = ("metrics:", "draft acceptance", "normalized")
"""Lines that other parsers read, and a length of another kind."""

ROUNDED = 0.0051
"""Rates at a token are printed with two decimals."""


class SpecSummary:
    """One window per printed summary; a figure that is there already begins the next."""

    name = "spec-summary"
    gates = (
        b"num_accepted_tokens:",
        b"ccept length:",
        b"mean acceptance length:",
        b"token/s, Acceptance length:",
        b"umber of accepted tokens:",
        b"accepted_drafts",
        b"pred=",
        b" accepted / ",
    )
    marks = (
        b"num_drafts",
        b"num_draft_tokens",
        b"num_accepted_tokens",
        b"roposals:",
        b"draft tokens",
        b"ccepted tokens:",
        b"accepted_drafts",
        b" accepted / ",
        b"cycles=",
        b"drafted=",
        b"emitted=",
        b"ccept length:",
        b"cceptance length:",
        b"hroughput:",
        b"output_tokens:",
        b"output tokens:",
        b"generation tokens:",
        b"t token ",
        b"pred=",
        b"Benchmark Result",
        b"Speculative Decoding-",
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._found: dict[str, float] = {}
        self._rates: list[float] = []
        self._summaries = 0
        self._off = False

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        text = plain(line)
        if "Benchmark Result" in text or "Speculative Decoding-" in text:
            self._off = True  # a block of `bench serve`, which says the same in its own words
        if self._off or torn or any(word in text for word in _OTHERS):
            return ()
        counts = {
            _OF_WORD[word.lower()]: float(number.replace(",", "") or 0)
            for number, word in _COUNTED_WORDS.findall(text)
        }
        if {"accepted", "proposed", "drafts"} <= counts.keys():
            return [self._counted(counts, [])]
        request = _REQUEST.search(text)
        if request:
            return [_request(self._input, *request.groups())]
        position = _POSITION.search(text)
        if position:
            found = quantity(position.group(2))
            if found and int(position.group(1)) == len(self._rates) < LONGEST_DRAFT:
                self._rates.append(found.value)
            return ()
        figures = {}
        for name, pattern in _FIGURES.items():
            match = pattern.search(text)
            found = quantity(match.group(1)) if match else None
            if found and found.value >= 0:
                figures[name] = found.value
        again = figures.keys() & self._found.keys()
        ended = list(self.finish()) if again else []
        self._found.update(figures)
        return ended

    def finish(self) -> Iterator[Record]:
        found, rates, self._found, self._rates = self._found, self._rates, {}, []
        if {"drafts", "accepted"} <= found.keys():
            yield self._counted(found, rates)
        elif "length" in found and "tok_s" in found:
            self._summaries += 1
            name = arm_name(self._input)
            if self._summaries > 1:
                name += f" {self._summaries}"
            result: dict[str, object] = {"output_throughput": found["tok_s"]}
            if found["length"] > 1:  # the script prints 1 where the engine never verified
                result["accept_length"] = found["length"]
            yield from flat(self._input, name, result)
        elif found.get("length", 0) > 1:
            yield Window(self._input, "unknown", grain="run", printed_length=found["length"])

    def _counted(self, found: dict[str, float], rates: list[float]) -> Window:
        drafts, accepted = round(found["drafts"]), round(found["accepted"])
        proposed = round(found["proposed"]) if "proposed" in found else None
        k = proposed // drafts if proposed and drafts and proposed % drafts == 0 else None
        positions = _scaled(rates, accepted / drafts) if drafts else None
        return Window(
            self._input,
            "vllm" if "proposed" in found and rates else "unknown",
            grain="run",
            k=k or (len(rates) or None),
            drafts=drafts,
            proposed=proposed,
            accepted=accepted,
            generated=found.get("generated"),
            printed_positions=positions,
            printed_length=found.get("length"),
            estimated=("position_rates",) if positions else (),
        )


def _scaled(rates: list[float], kept: float) -> tuple[float, ...] | None:
    """Rates of two decimals, made to sum to what the counts say; None if they contradict them."""
    total = sum(rates)
    if not rates or total <= 0 or abs(total - kept) > ROUNDED * len(rates):
        return None
    return tuple(min(rate * kept / total, 1.0) for rate in rates)


def _request(
    input: str, name: str, tokens: str, proposed: str, accepted: str, tok_s: str
) -> Window:
    generated, drafted, kept = int(tokens), int(proposed), int(accepted)
    speed = quantity(tok_s)
    steps = generated - kept
    length = generated / steps if drafted and steps > 0 else None
    return Window(
        input,
        "llama.cpp",
        grain="request",
        label=name,
        proposed=drafted or None,
        accepted=kept if drafted else None,
        generated=generated,
        printed_length=length,
        throughput_tok_s=speed.value if speed else None,
        target_only=not drafted,
        estimated=("mean_length",) if length else (),
    )
