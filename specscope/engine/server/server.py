"""Runs the OpenAI-compatible server until a signal ends it."""

import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import torch
import uvicorn

from specscope.engine.errors import BadSetting, EngineError
from specscope.engine.pair import Pair
from specscope.engine.server.service import Service, Settings

DRAIN_SECONDS = 60


def serve(pair: Pair, settings: Settings, device: str, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is running.

    Raises EngineError if the port is taken, BadSetting if the engine cannot be built or its
    caches and graphs do not fit the device.
    """
    try:
        service = Service(pair, settings, device)
        began = time.monotonic()
        if count := service.warm_up():
            say(f"captured {count} shapes of rounds in {time.monotonic() - began:.1f} s")
    except torch.OutOfMemoryError as error:
        raise BadSetting(
            f"{device} has too little memory for {settings.slots} sequences of "
            f"{settings.capacity} tokens: fewer --slots, a smaller --capacity or --no-graphs "
            "need less"
        ) from error
    # uvicorn raises the signal again once it has shut down; by then it has done its work.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with _bind(settings.host, settings.port) as listening:
        host, port = listening.getsockname()[:2]
        say(f"serving {pair.name} at http://{host}:{port}/v1")
        config = uvicorn.Config(
            service.app(), log_level="warning", timeout_graceful_shutdown=DRAIN_SECONDS
        )
        DrainingServer(config, service).run(sockets=[listening])


class DrainingServer(uvicorn.Server):
    """Drains at the first signal, and still answers /health meanwhile; a second signal ends it.

    uvicorn alone would close the listener at once, and a load balancer would see refused
    connections in place of a 503.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.worker, self.deadline = service.worker, float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        if self.worker.draining:
            super().handle_exit(sig, frame)
            return
        self.worker.drain()
        self.deadline = time.monotonic() + DRAIN_SECONDS

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to shut down."""
        ends = await super().on_tick(counter)
        drained = self.worker.draining and (self.worker.idle or time.monotonic() > self.deadline)
        return ends or drained


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise EngineError(f"cannot listen on {host}:{port}: {error.strerror}") from error
