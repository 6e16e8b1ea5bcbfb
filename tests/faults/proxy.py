"""A TCP proxy between sidecar and service that cuts, holds back, repeats and damages bytes."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time

UP, DOWN = "up", "down"
MOST_REPLAYED = 4 << 20


class Proxy:
    """Listens on `port` and passes bytes on to `target`, as `fault` says."""

    def __init__(self, port: int, target: int, seed: int) -> None:
        self.port, self._target = port, target
        self._random = random.Random(seed)
        self.refusing = False
        self.holding: set[str] = set()
        """Directions whose bytes are swallowed."""
        self.delay_s = 0.0
        self._once: dict[str, str] = {}
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._sent = bytearray()
        """What went up on the newest connection."""
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        self.refusing, self.delay_s = False, 0.0
        self._once.clear()
        if self.holding:  # what was swallowed is missing from its stream
            self.holding = set()
            self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def damage(self, direction: str, how: str) -> None:
        """`flip`, `repeat` or `truncate` the next bytes that go this way."""
        self._once[direction] = how

    def replay(self) -> None:
        """Say to the target once more, on another connection, what was said to it before."""
        again = bytes(self._sent)
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._target), timeout=1) as stranger,
        ):
            stranger.sendall(again)
            deadline = time.monotonic() + 1
            while stranger.recv(1 << 16) and time.monotonic() < deadline:
                pass

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                if self.refusing:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            self._sent = bytearray()
            for source, sink, direction in ((near, far, UP), (far, near, DOWN)):
                threading.Thread(
                    target=self._pump, args=(source, sink, direction), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        sent = self._sent
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if direction == UP and len(sent) < MOST_REPLAYED:
                    sent += data
                if direction in self.holding:
                    continue
                if self.delay_s:
                    time.sleep(self.delay_s)
                if len(data) > 64 and (how := self._once.pop(direction, "")):
                    data = self._damaged(data, how)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _damaged(self, data: bytes, how: str) -> bytes:
        place = self._random.randrange(len(data))
        if how == "repeat":
            return data + data[place:]
        if how == "truncate":
            return data[:place]
        flipped = bytearray(data)
        flipped[place] ^= 1 << self._random.randrange(8)
        return bytes(flipped)
