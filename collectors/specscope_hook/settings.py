"""All SPECSCOPE_* settings, and the hook's own.

In the serving process an unknown name is a warning, because a typo must not stop a server. In all
other processes `check` refuses it and names the nearest known one.
"""

from __future__ import annotations

import difflib
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from specscope_hook.errors import SettingsError

PREFIX = "SPECSCOPE_"

HOOK, SIDECAR, SERVICE, COMMANDS = "hook", "sidecar", "service", "commands"


class Setting(NamedTuple):
    """A setting: who reads it (HOOK, SIDECAR, SERVICE, COMMANDS), its meaning and its default."""

    readers: tuple[str, ...]
    meaning: str
    default: str = "none"


KNOWN: dict[str, Setting] = {
    "SPECSCOPE_RINGS": Setting(
        (HOOK, SIDECAR, COMMANDS),
        "directory of the rings, in memory and shared by engine and sidecar, such as /dev/shm; "
        "off: the hook does nothing",
        "off",
    ),
    "SPECSCOPE_REPLICA": Setting((HOOK, SIDECAR), "name of this replica", "the host's name"),
    "SPECSCOPE_RING_BYTES": Setting(
        (HOOK,),
        "size of a ring; the default holds about 30 s of 200 rounds/s of 256 sequences",
        "33554432",
    ),
    "SPECSCOPE_SALT": Setting(
        (HOOK,),
        "key of the hashes of request ids and outputs; give all replicas the same key to compare "
        "their outputs",
        "random at each start",
    ),
    "SPECSCOPE_CLASSES": Setting(
        (HOOK,), "file of rules that give requests their class, in vLLM and SGLang"
    ),
    "SPECSCOPE_PRICE_PER_HOUR": Setting(
        (HOOK,), "price of the replica, in your currency; verdicts then give costs"
    ),
    "SPECSCOPE_REQUEST_K": Setting(
        (HOOK,),
        "on: vLLM takes its draft length from the policy, which experiments need; the reference "
        "engine always does, SGLang and transformers never do",
        "off",
    ),
    "SPECSCOPE_SOURCES": Setting(
        (SIDECAR,),
        "servers without a hook, separated by commas: [replica=]llama.cpp:/path/to/log follows a "
        "log, [replica=]vllm.metrics:http://host:8000/metrics a page, "
        "[replica=]forward-passes:tcp://host:20380 what an engine publishes",
    ),
    "SPECSCOPE_SERVICE": Setting(
        (SIDECAR, COMMANDS),
        "host:port of the service; without it the sidecar keeps batches in its spool, and no "
        "command changes a policy",
    ),
    "SPECSCOPE_TLS_CA": Setting(
        (SIDECAR, COMMANDS),
        "file of the authority that signed the service's certificate, or system for those that "
        "this machine trusts; without it nothing is encrypted",
    ),
    "SPECSCOPE_TOKEN_FILE": Setting((SIDECAR, COMMANDS), "file with the token for the service"),
    "SPECSCOPE_TLS_CERT": Setting((SIDECAR, SERVICE), "file of this process's certificate chain"),
    "SPECSCOPE_TLS_KEY": Setting((SIDECAR, SERVICE), "file of that certificate's private key"),
    "SPECSCOPE_SPOOL": Setting(
        (SIDECAR,), "directory of the sidecar's queue on disk", "/var/lib/specscope/spool"
    ),
    "SPECSCOPE_SPOOL_BYTES": Setting(
        (SIDECAR,),
        "largest size of that queue; if it is full, the sidecar drops detail first and counts it",
        "1073741824",
    ),
    "SPECSCOPE_OTLP": Setting(
        (SIDECAR,), "OpenTelemetry endpoint that gets sampled requests as spans"
    ),
    "SPECSCOPE_SAMPLE": Setting((SIDECAR,), "share of requests that become spans, 0 to 1", "0.01"),
    "SPECSCOPE_METRICS_PORT": Setting(
        (SIDECAR,), "port of the sidecar's /metrics, /health and /live"
    ),
    "SPECSCOPE_METRICS_HOST": Setting((SIDECAR,), "address of that port", "127.0.0.1"),
    "SPECSCOPE_STORE": Setting(
        (SERVICE, COMMANDS),
        "the store: chdb:///path, clickhouse://user@host/db, or a service's http://host:port to "
        "read from",
        "none: set it, or give --store",
    ),
    "SPECSCOPE_STORE_SYNC": Setting(
        (SERVICE,),
        "on: acknowledged rows of an embedded store survive a power loss; off: they survive a "
        "crash only",
        "on",
    ),
    "SPECSCOPE_STORE_MIN_FREE_BYTES": Setting(
        (SERVICE,), "bytes that must be free before an embedded store writes", "268435456"
    ),
    "SPECSCOPE_LISTEN": Setting(
        (SERVICE,), "host:port at which the service accepts batches", "127.0.0.1:7070"
    ),
    "SPECSCOPE_HTTP": Setting(
        (SERVICE,), "host:port of the service's read endpoint", "127.0.0.1:8123"
    ),
    "SPECSCOPE_METRICS_LISTEN": Setting(
        (SERVICE,), "host:port of /metrics and /health, for callers without a token"
    ),
    "SPECSCOPE_TOKENS": Setting(
        (SERVICE,),
        "file of the tokens that the service accepts, with rights and tenants; needed beyond this "
        "machine",
        "none: no token is needed",
    ),
    "SPECSCOPE_TLS_CLIENT_CA": Setting(
        (SERVICE,),
        "file of the authority that signs clients' certificates; clients must then show one",
    ),
    "SPECSCOPE_INSECURE": Setting(
        (SERVICE,), "on: listen beyond this machine without tokens and TLS", "off"
    ),
    "SPECSCOPE_REPORT_SEND": Setting(
        (COMMANDS,), "webhook to which report sends its verdicts; the address is a secret"
    ),
    "SPECSCOPE_APPLY_TOKEN": Setting(
        (SERVICE, COMMANDS),
        "secret with which gate changes policies through the service; without it nobody can",
    ),
}
"""Every setting by name. The page of settings is made from this."""

_INJECTED = re.compile(  # what Kubernetes sets for a Service whose name begins with `specscope`
    r"SPECSCOPE_(PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
    r"|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)"
    r"|\w+_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def unknown(environ: Mapping[str, str]) -> dict[str, str]:
    """Unknown SPECSCOPE_* names, each with the nearest known one ("" if none is near)."""
    wrong = {}
    for name in environ:
        if name.startswith(PREFIX) and name not in KNOWN and not _INJECTED.fullmatch(name):
            ends = [known.removeprefix(PREFIX) for known in KNOWN]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1, cutoff=0.6)
            wrong[name] = PREFIX + near[0] if near else ""
    return wrong


def complaints(environ: Mapping[str, str]) -> list[str]:
    """One line for each unknown name."""
    return [
        f"{name} is not a setting" + (f"; did you mean {near}?" if near else "")
        for name, near in unknown(environ).items()
    ]


def check(environ: Mapping[str, str]) -> None:
    """Refuse unknown names. For every process except the serving one.

    Raises SettingsError with the first one and its nearest known name.
    """
    if wrong := complaints(environ):
        raise SettingsError(wrong[0])


@dataclass(frozen=True, slots=True)
class HookSettings:
    """Settings of the hook in the serving process."""

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

        Raises SettingsError for an invalid value.
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
