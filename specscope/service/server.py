"""The gRPC server: its limits, its certificates, its methods, and the standard health service."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from specscope.errors import ServiceError
from specscope.service.ingest import Ingest
from specscope.service.limits import HELLO_S, IDLE_S, MAX_STREAMS, descriptors_left
from specscope.service.tls import Certificates
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.sealed import sealed

NAME = "specscope.v1.Telemetry"
MESSAGE_BYTES = 4 << 20  # sidecars send at most 2 MiB; more is somebody's mistake
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # Nothing is compressed but Arrow's own buffers, which say how large they will be.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 64),  # of one connection; a sidecar has one
    ("grpc.server_handshake_timeout_ms", int(1e3 * HELLO_S)),
    ("grpc.so_reuseport", 0),  # else a second service on the port would go unnoticed
    # A probe of the connection's speed would answer most batches with a ping, and grow the window.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 256 << 10),  # of a stream: some ten batches; 64 kB by default
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


class Server:
    """A running gRPC server."""

    def __init__(self, server: Any, port: int, health_: Any) -> None:
        self._server, self.port, self._health = server, port, health_

    async def stop(self, grace_s: float) -> None:
        """Announce the end, refuse new streams, and give open streams a moment."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    async def show(self, *, serving: bool) -> None:
        """Set the answer of the health service, for the server and for our service."""
        status = health_pb2.HealthCheckResponse
        for name in ("", NAME):
            await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)


async def listen(ingest: Ingest, address: str, certificates: Certificates | None = None) -> Server:
    """Start to accept streams.

    Raises ServiceError if the address cannot be bound, UsageError if the certificates are invalid.
    """
    connections = ("grpc.max_allowed_incoming_connections", min(MAX_STREAMS, descriptors_left()))
    idle = ("grpc.max_connection_idle_ms", int(1e3 * IDLE_S))
    server = grpc.aio.server(options=[*OPTIONS, connections, idle])
    # Bytes as they come: what is no message is refused in one line, not logged as a traceback.
    methods = {
        "Publish": grpc.stream_stream_rpc_method_handler(ingest.Publish, None, sealed),
        "Apply": grpc.unary_unary_rpc_method_handler(
            ingest.Apply, None, wire.Applied.SerializeToString
        ),
        "Keep": grpc.unary_unary_rpc_method_handler(ingest.Keep, None, wire.Kept.SerializeToString),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, methods),))
    health_ = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_, server)
    try:
        port = (
            server.add_secure_port(address, certificates.for_grpc())
            if certificates
            else server.add_insecure_port(address)
        )
    except RuntimeError:
        port = 0
    if not port:
        raise ServiceError(f"cannot listen on {address}: in use, or not an address of this machine")
    await server.start()
    running = Server(server, port, health_)
    await running.show(serving=True)
    return running
