"""The sidecar's settings, from the environment."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from specscope_agent.channel import Security
from specscope_agent.sources.kinds import KINDS
from specscope_hook.errors import SettingsError
from specscope_hook.settings import check

DEFAULT_SPOOL = Path("/var/lib/specscope/spool")
DEFAULT_SPOOL_BYTES = 1 << 30  # an hour of 200 rounds/s at batch 256


_SOURCE = re.compile(r"\s*(?:([^=:,\s]+)=)?([^=:,\s]+):([^,]+?)\s*")


class SourceSetting(NamedTuple):
    """A server without a hook: its replica name, its kind, and the address or file to follow."""

    replica: str
    kind: str
    where: str
    """Path of a log, or address of a page, as the kind asks for."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of the sidecar; specscope_hook.settings.KNOWN has names and meanings."""

    rings: Path | None
    """None: there are only live sources."""
    spool: Path = DEFAULT_SPOOL
    spool_bytes: int = DEFAULT_SPOOL_BYTES
    service: str | None = None
    """host:port; without it batches stay in the spool."""
    otlp: str | None = None
    sample: float = 0.01
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    security: Security = field(default_factory=Security)
    """How the service is known, and how it knows the sidecar."""
    sources: tuple[SourceSetting, ...] = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> AgentSettings:
        """Read the environment. Raises SettingsError for an unknown name or an invalid value."""
        check(environ)
        rings, sources = environ.get("SPECSCOPE_RINGS", ""), source_settings(environ)
        if rings in ("", "off") and not sources:
            raise SettingsError("SPECSCOPE_RINGS names no directory, so there is nothing to drain")
        security, service = Security.from_env(environ), _address(environ, "SPECSCOPE_SERVICE")
        if service:
            security.check(service)
        return cls(
            rings=None if rings in ("", "off") else Path(rings),
            spool=Path(environ.get("SPECSCOPE_SPOOL") or DEFAULT_SPOOL),
            spool_bytes=_size(environ, "SPECSCOPE_SPOOL_BYTES", DEFAULT_SPOOL_BYTES),
            service=service,
            otlp=environ.get("SPECSCOPE_OTLP") or None,
            sample=_share(environ, "SPECSCOPE_SAMPLE", 0.01),
            metrics_port=_port(environ, "SPECSCOPE_METRICS_PORT"),
            metrics_host=environ.get("SPECSCOPE_METRICS_HOST") or "127.0.0.1",
            security=security,
            sources=sources,
        )


def source_settings(environ: Mapping[str, str]) -> tuple[SourceSetting, ...]:
    """The servers in SPECSCOPE_SOURCES. Raises SettingsError for an invalid one."""
    text = environ.get("SPECSCOPE_SOURCES", "")
    own = environ.get("SPECSCOPE_REPLICA") or socket.gethostname()
    sources: list[SourceSetting] = []
    for item in text.split(",") if text.strip() else ():
        parts = _SOURCE.fullmatch(item)
        if parts is None:
            raise SettingsError(f"SPECSCOPE_SOURCES={item!r} is not [replica=]kind:where")
        setting = SourceSetting(parts.group(1) or own, parts.group(2), parts.group(3))
        if setting.kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise SettingsError(f"SPECSCOPE_SOURCES={item!r}: {setting.kind} is none of: {kinds}")
        if setting.replica in {other.replica for other in sources}:
            raise SettingsError(f"SPECSCOPE_SOURCES names the replica {setting.replica!r} twice")
        sources.append(setting)
    return tuple(sources)


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{name}={text!r} is not a whole number")
    return int(text)


def _size(environ: Mapping[str, str], name: str, default: int) -> int:
    size = _whole(environ, name, default)
    if size == 0:
        raise SettingsError(f"{name}=0 leaves no room for a batch")
    return size


def _port(environ: Mapping[str, str], name: str) -> int | None:
    port = _whole(environ, name, 0)
    if port > 65535:
        raise SettingsError(f"{name}={port} is no port: at most 65535")
    return port or None


def _share(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise SettingsError(f"{name}={text!r} is not within 0 and 1")
    return value


def _address(environ: Mapping[str, str], name: str) -> str | None:
    text = environ.get(name) or None
    host, _, port = (text or "").rpartition(":")
    numbered = port.isascii() and port.isdigit() and 0 < int(port) <= 65535
    if text and not (host and numbered and "/" not in host):
        raise SettingsError(f"{name}={text!r} is not host:port")
    return text
