"""Run all parts of a schedule on both endpoints, at the trace's arrivals or at fixed
concurrency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specscope.replay.client import Endpoint, Outcome
from specscope.replay.counters import Counted, between
from specscope.replay.schedule import Part
from specscope.replay.trace import Asked
from specscope.served import asking


@dataclass(frozen=True, slots=True)
class ReplayPace:
    """The pace of the requests.

    speed: factor on the trace's arrivals. concurrency: requests in flight in a closed loop; None
    for arrivals. together: run both sides at the same time. warm_up: unmeasured requests to each
    side. timeout_s: longest time without a byte.
    """

    speed: float = 1.0
    concurrency: int | None = None
    together: bool = False
    warm_up: int = 2
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class PlayedPart:
    """The answers of both sides to one part, and the sides' own counters."""

    number: int
    outcomes: tuple[Outcome, ...]
    counted: Mapping[str, Counted | None]


def play(
    urls: Sequence[str],
    parts: Sequence[Part],
    pace: ReplayPace,
    *,
    model: str | None = None,
    played: Callable[[PlayedPart], object] = lambda _: None,
) -> list[PlayedPart]:
    """Run every part on both sides. Raises InputError if an address has no server.

    played: called with each part after both sides have answered it
    """
    return asyncio.run(_play(urls, parts, pace, model, played)) if parts else []


async def _play(
    urls: Sequence[str],
    parts: Sequence[Part],
    pace: ReplayPace,
    model: str | None,
    played: Callable[[PlayedPart], object],
) -> list[PlayedPart]:
    async with asking(pace.timeout_s) as client:
        sides = {
            side: Endpoint(side, url, client, model) for side, url in zip("ab", urls, strict=True)
        }
        for endpoint in sides.values():
            await endpoint.check()
            for asked in parts[0].requests[: pace.warm_up]:
                await endpoint.ask(asked, -1, time.perf_counter())
        done = []
        for part in parts:
            ordered = [sides[side] for side in part.order]
            if pace.together:
                both = (_counted_stretch(side, part, pace) for side in ordered)
                answers = await asyncio.gather(*both)
            else:
                answers = [await _counted_stretch(side, part, pace) for side in ordered]
            done.append(
                PlayedPart(
                    part.number,
                    tuple(outcome for outcomes, _ in answers for outcome in outcomes),
                    {side: one for side, (_, one) in zip(part.order, answers, strict=True)},
                )
            )
            played(done[-1])
    return done


async def _counted_stretch(
    side: Endpoint, part: Part, pace: ReplayPace
) -> tuple[list[Outcome], Counted | None]:
    before = await side.metrics()
    outcomes = await _stretch(side, part, pace)
    return outcomes, between(before, await side.metrics())


async def _stretch(side: Endpoint, part: Part, pace: ReplayPace) -> list[Outcome]:
    """Run one part on one side; the server is idle before and after it."""
    began = time.perf_counter()
    if pace.concurrency is not None:
        return await _at_depth(side, part, began, pace.concurrency)

    async def at_its_time(asked: Asked) -> Outcome:
        due = began + (asked.offset_s - part.begin_s) / pace.speed
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return await side.ask(asked, part.number, began, max(0.0, time.perf_counter() - due))

    return list(await asyncio.gather(*map(at_its_time, part.requests)))


async def _at_depth(side: Endpoint, part: Part, began: float, depth: int) -> list[Outcome]:
    waiting = iter(part.requests)

    async def one_after_the_other() -> list[Outcome]:
        return [await side.ask(asked, part.number, began) for asked in waiting]

    found = await asyncio.gather(*(one_after_the_other() for _ in range(depth)))
    return [outcome for client in found for outcome in client]
