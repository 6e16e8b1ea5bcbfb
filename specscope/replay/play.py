"""All parts of a schedule against both endpoints, at the trace's arrivals or at a fixed depth."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from specscope.replay.client import Endpoint, Outcome
from specscope.replay.schedule import Part
from specscope.replay.trace import Asked


@dataclass(frozen=True, slots=True)
class ReplayPace:
    """How requests are sent. speed: of the trace's arrivals; concurrency: so many in flight
    instead, as soon as one ends the next, None for arrivals. together: both sides at once.
    warm_up: requests to each side before anything counts. timeout_s: without a byte.
    """

    speed: float = 1.0
    concurrency: int | None = None
    together: bool = False
    warm_up: int = 2
    timeout_s: float = 300.0


def play(
    urls: Sequence[str],
    parts: Sequence[Part],
    pace: ReplayPace,
    *,
    model: str | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> list[Outcome]:
    """Every answer of both sides. Raises InputError where an endpoint is none."""
    return asyncio.run(_play(urls, parts, pace, model, say))


async def _play(
    urls: Sequence[str],
    parts: Sequence[Part],
    pace: ReplayPace,
    model: str | None,
    say: Callable[[str], object],
) -> list[Outcome]:
    timeout = httpx.Timeout(pace.timeout_s, connect=10.0)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
        sides = {
            side: Endpoint(side, url, client, model) for side, url in zip("ab", urls, strict=True)
        }
        for endpoint in sides.values():
            await endpoint.check()
            for asked in parts[0].requests[: pace.warm_up]:
                await endpoint.ask(asked, -1, time.perf_counter())
        outcomes: list[Outcome] = []
        for part in parts:
            if pace.together:
                both = (_stretch(sides[side], part, pace) for side in part.order)
                for found in await asyncio.gather(*both):
                    outcomes += found
            else:
                for side in part.order:
                    outcomes += await _stretch(sides[side], part, pace)
            say(f"part {part.number + 1} of {len(parts)}")
    return outcomes


async def _stretch(side: Endpoint, part: Part, pace: ReplayPace) -> list[Outcome]:
    """One part against one side, from empty to empty."""
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
