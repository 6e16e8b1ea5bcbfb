"""How many sidecars one core of the service serves, at the small batches of an ordinary load.

Budget: at least 300. Each of `--agents` streams ships a batch every PERIOD_S, as a sidecar does: 88
rounds and 22 request parts, compressed. What counts is the processor time that the service's
process takes meanwhile, everything included: gRPC, decoding, inserts, merges, rollups. It does not
depend on what else the machine does. Batches that came late are printed: there must be few.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from typing import Any

import grpc
import pyarrow as pa
from service_ingest import cpu_s, started, tables, wire_batch

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

PERIOD_S = 0.45
ROUNDS = 88
WARM_S = 5.0  # until imports, caches and the first merges are done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    batches = int((WARM_S + args.seconds) / PERIOD_S)
    with tempfile.TemporaryDirectory() as folder, started(f"chdb://{folder}/store") as service:
        found = asyncio.run(_run(service.port, service.process.pid, args.agents, batches))
    print(json.dumps({"agents": args.agents, **found, "budget": 300}))


async def _run(port: int, process: int, agents: int, batches: int) -> dict[str, Any]:
    now = time.time_ns()
    shared = [tables(number, ROUNDS, now) for number in range(1, batches + 1)]
    start = time.monotonic() + 1.0
    streams = [
        asyncio.create_task(_agent(port, f"r{agent}", shared, start + PERIOD_S * agent / agents))
        for agent in range(agents)
    ]
    await asyncio.sleep(start + WARM_S - time.monotonic())
    before = cpu_s(process)
    late = sum(await asyncio.gather(*streams))
    cpu = (cpu_s(process) - before) / (agents * (batches - WARM_S / PERIOD_S))
    return {
        "cpu_ms_a_batch": round(1e3 * cpu, 3),
        "agents_per_core": round(PERIOD_S / cpu),
        "late_share": round(late / (agents * batches), 3),
    }


async def _agent(port: int, replica: str, shared: list[dict[str, Any]], start: float) -> int:
    """Ship all batches in time; returns how many went out more than two periods late."""
    late = 0
    source = wire.Source(replica=replica, boot="b")

    async def up() -> Any:
        nonlocal late
        yield wire.FromAgent(hello=wire.Hello(schema_version=1, sources=[source], takes_acks=True))
        for number, rows in enumerate(shared, start=1):
            batch = wire_batch(number, _of(replica, rows), replica, ROUNDS)
            due = start + PERIOD_S * number
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            late += time.monotonic() - due > 2 * PERIOD_S
            yield wire.FromAgent(batch=batch)

    # A connection of its own, as each sidecar has.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        acknowledged = 0
        async for message in TelemetryStub(channel).Publish(up()):
            acknowledged += len(message.acks.acks)
            assert not any(ack.refused_rows for ack in message.acks.acks)
    assert acknowledged == len(shared), acknowledged
    return late


def _of(replica: str, rows: dict[str, Any]) -> dict[str, Any]:
    """The same rows under another replica's name."""
    renamed = {}
    for name, table in rows.items():
        place = table.schema.get_field_index("replica")
        column = pa.array([replica] * table.num_rows, pa.string())
        renamed[name] = table.set_column(place, table.schema.field(place), column)
    return renamed


if __name__ == "__main__":
    main()
