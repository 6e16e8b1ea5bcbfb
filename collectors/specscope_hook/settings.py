"""Settings: every SPECSCOPE_* name that anything of ours reads, and the hook's own.

Inside the serving process a wrong name is a warning, since a typo must not stop a server;
everywhere else `check` refuses it and names the nearest.
"""

from __future__ import annotations

import difflib
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specscope_hook.errors import SettingsError

PREFIX = "SPECSCOPE_"

KNOWN: dict[str, str] = {
    "SPECSCOPE_RINGS": "directory of the rings, memory-backed and shared with the sidecar; or off",
    "SPECSCOPE_REPLICA": "name of this serving replica; the host's name by default",
    "SPECSCOPE_RING_BYTES": "size of a ring's data; 33554432 by default",
    "SPECSCOPE_SALT": "key of the hash that stands for request ids; random per start by default",
    "SPECSCOPE_CLASSES": "file of rules that give requests their class",
    "SPECSCOPE_PRICE_PER_HOUR": "price of the replica, in your currency",
    "SPECSCOPE_REQUEST_K": "on: follow the policy's draft length per request, where possible",
    "SPECSCOPE_SERVICE": "host:port of the ingest service",
    "SPECSCOPE_SPOOL": "directory of the sidecar's queue on disk",
    "SPECSCOPE_SPOOL_BYTES": "largest size of that queue",
    "SPECSCOPE_SOURCES": "servers without a hook that the sidecar follows: llama.cpp:/path/to/log",
    "SPECSCOPE_OTLP": "endpoint that sampled requests are sent to as spans",
    "SPECSCOPE_SAMPLE": "share of requests that become spans, 0 to 1",
    "SPECSCOPE_METRICS_PORT": "port of the sidecar's /metrics, /health and /live",
    "SPECSCOPE_METRICS_HOST": "address of that port; 127.0.0.1 by default, this machine alone",
    "SPECSCOPE_STORE": "destination of the store: chdb:///path, clickhouse://user@host/db",
    "SPECSCOPE_STORE_SYNC": "on: acknowledged rows survive a power loss; off: only a crash",
    "SPECSCOPE_STORE_MIN_FREE_BYTES": "bytes that must be free before an embedded store writes",
    "SPECSCOPE_LISTEN": "host:port that the service takes batches on",
    "SPECSCOPE_HTTP": "host:port of the service's read endpoint",
    "SPECSCOPE_METRICS_LISTEN": "host:port where the service also shows /metrics and /health",
    "SPECSCOPE_TOKENS": "file of the tokens that the service takes, with their rights",
    "SPECSCOPE_TOKEN_FILE": "file of the token that this process shows to the service",
    "SPECSCOPE_TLS_CERT": "file of this process's certificate, with its chain",
    "SPECSCOPE_TLS_KEY": "file of that certificate's key",
    "SPECSCOPE_TLS_CA": "file of those who sign the service's certificate; or system",
    "SPECSCOPE_TLS_CLIENT_CA": "file of those who sign the certificates that clients must show",
    "SPECSCOPE_INSECURE": "on: the service listens beyond this machine and asks nobody who calls",
    "SPECSCOPE_APPLY_TOKEN": "secret that lets `gate apply` change policies through the service",
}
"""Meaning of every setting, by name."""

_INJECTED = re.compile(  # what Kubernetes sets for a Service whose name begins with `specscope`
    r"SPECSCOPE_(PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
    r"|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)"
    r"|\w+_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def unknown(environ: Mapping[str, str]) -> dict[str, str]:
    """SPECSCOPE_* names that mean nothing, each with the nearest known one ("" where none is)."""
    wrong = {}
    for name in environ:
        if name.startswith(PREFIX) and name not in KNOWN and not _INJECTED.fullmatch(name):
            ends = [known.removeprefix(PREFIX) for known in KNOWN]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1, cutoff=0.6)
            wrong[name] = PREFIX + near[0] if near else ""
    return wrong


def complaints(environ: Mapping[str, str]) -> list[str]:
    """One line for each name that means nothing."""
    return [
        f"{name} is not a setting" + (f"; did you mean {near}?" if near else "")
        for name, near in unknown(environ).items()
    ]


def check(environ: Mapping[str, str]) -> None:
    """Refuse names that mean nothing. For every process but the serving one.

    Raises SettingsError that names the first one and its nearest known name.
    """
    if wrong := complaints(environ):
        raise SettingsError(wrong[0])


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What the hook in the serving process is told."""

    rings: Path | None  # None: off
    replica: str
    ring_bytes: int = 32 << 20  # about 30 s of rounds of 256 sequences at 200 rounds/s
    salt: str | None = None
    classes: Path | None = None
    price_per_hour: float | None = None
    request_k: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> HookSettings:
        """Read the hook's settings; the hook is off unless SPECSCOPE_RINGS names a directory.

        Raises SettingsError for a value that means nothing.
        """
        rings = environ.get("SPECSCOPE_RINGS", "off")
        classes = environ.get("SPECSCOPE_CLASSES")
        return cls(
            rings=None if rings in ("", "off") else Path(rings),
            replica=environ.get("SPECSCOPE_REPLICA") or socket.gethostname(),
            ring_bytes=_size(environ, "SPECSCOPE_RING_BYTES", 32 << 20),
            salt=environ.get("SPECSCOPE_SALT") or None,
            classes=Path(classes) if classes else None,
            price_per_hour=_price(environ, "SPECSCOPE_PRICE_PER_HOUR"),
            request_k=_switch(environ, "SPECSCOPE_REQUEST_K"),
        )


def _size(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise SettingsError(f"{name}={text!r} is not a number of bytes")
    return int(text)


def _price(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SettingsError(f"{name}={text!r} is not a price")
    return value


def _switch(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "off").lower()
    if text not in ("on", "off"):
        raise SettingsError(f"{name}={text!r} is neither on nor off")
    return text == "on"
