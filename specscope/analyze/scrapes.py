"""Convert scrapes into windows: differences within the life of a process, or sums since its
start."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from specscope.readers.records import Finding, Record, Scrape
from specscope.readers.scrapes import counters, dcgm, reference_engine, sglang, tgi
from specscope.readers.scrapes.counters import Change

_COUNTERS = ("_total", "_count", "_sum")
_BOOTS = ("process_start_time_seconds", "_created")
MOST_SCRAPES = 4096


class Scrapes:
    """All scrapes of all inputs, by target."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, ...], list[Scrape]] = defaultdict(list)

    def add(self, scrape: Scrape) -> None:
        """Add a scrape. If there are too many, every second one is dropped; differences still add
        up."""
        scrapes = self._targets[_target(scrape)]
        scrapes.append(scrape)
        if len(scrapes) > MOST_SCRAPES:
            del scrapes[1:-1:2]

    def records(self) -> Iterator[Record]:
        """Windows, devices and findings of every target."""
        for scrapes in self._targets.values():
            for boot in _boots(scrapes):
                if isinstance(boot, Finding):
                    yield boot
                else:
                    for change in _changes(boot):
                        yield from counters.windows(change)
                        yield from sglang.windows(change)
                        yield from tgi.windows(change)
                        yield from reference_engine.windows(change)
                        yield from dcgm.devices(change)


def _target(scrape: Scrape) -> tuple[str, ...]:
    """The engine family and the model's names; scrapes contain no hosts or ports."""
    names = {name.partition(":")[0].partition("_")[0] for name, _ in scrape.samples}
    models = {dict(labels).get("model_name", "") for _, labels in scrape.samples}
    return (
        *sorted(
            names & {"vllm", "sglang", "llamacpp", "trtllm", "tgi", "lmdeploy", "specscope", "DCGM"}
        ),
        *sorted(models - {""}),
    )


def _boots(scrapes: list[Scrape]) -> Iterator[list[Scrape] | Finding]:
    """Group scrapes by start, in the order of their counters, since files have no order."""
    by_boot: dict[object, list[Scrape]] = defaultdict(list)
    for scrape in scrapes:
        by_boot[_boot(scrape)].append(scrape)
    if len(by_boot) > 1:
        yield Finding("COUNTER_RESET", "scrapes of different starts of the engine: counted apart")
    for group in by_boot.values():
        if len({scrape.input for scrape in group}) == len(group) > 1:
            ordered = sorted(group, key=_sum)
            if [s.input for s in ordered] != [s.input for s in group]:
                yield Finding("OUT_OF_ORDER", "scrapes were ordered by their counters")
            group = ordered
        boot: list[Scrape] = []
        for scrape in group:
            if boot and _fell(boot[-1], scrape):
                yield Finding("COUNTER_RESET", "a counter fell between two scrapes: counted apart")
                yield boot
                boot = []
            boot.append(scrape)
        yield boot


def _changes(boot: list[Scrape]) -> Iterator[Change]:
    if len(boot) == 1:
        yield Change(boot[0].input, boot[0].samples, boot[0].samples, None)
        return
    for before, after in itertools.pairwise(boot):
        delta = {key: value - before.samples.get(key, 0.0) for key, value in after.samples.items()}
        seconds = None
        if after.at is not None and before.at is not None:
            seconds = after.at - before.at
        yield Change(after.input, delta, after.samples, seconds)


def _boot(scrape: Scrape) -> object:
    for (name, _), value in scrape.samples.items():
        if name == _BOOTS[0]:
            return value
    created = [v for (name, _), v in scrape.samples.items() if name.endswith(_BOOTS[1])]
    return round(min(created)) if created else None


def _fell(before: Scrape, after: Scrape) -> bool:
    return any(
        value < before.samples.get(key, value)
        for key, value in after.samples.items()
        if key[0].endswith(_COUNTERS)
    )


def _sum(scrape: Scrape) -> float:
    return sum(v for (name, _), v in scrape.samples.items() if name.endswith("_total"))
