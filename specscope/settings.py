"""Settings of the service: arguments over environment over defaults, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specscope.errors import UsageError
from specscope.store.room import MIN_FREE_BYTES
from specscope_agent.channel import is_loopback
from specscope_hook.errors import SettingsError
from specscope_hook.settings import check

# Of this machine alone, so that nobody needs a token.
LISTEN = "127.0.0.1:7070"
HTTP = "127.0.0.1:8123"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The store, the addresses and the limits of the service."""

    store: str
    listen: str = LISTEN
    http: str = HTTP
    apply_token: str = field(default="", repr=False)
    """Who knows it may change policies; empty: nobody may."""
    synced: bool = True
    """Whether an embedded store writes rows through to the disk before they are acknowledged."""
    min_free: int = MIN_FREE_BYTES
    """Bytes that must be free on an embedded store's disk before the service writes."""
    tokens: Path | None = None
    """File of the tokens that it takes; None: it asks for none."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Who signs the certificates that clients must show; None: they need none."""
    metrics: str | None = None
    """Where /metrics and /health are shown besides, to whoever asks."""
    insecure: bool = False
    """Listen beyond this machine without tokens or TLS."""

    def __post_init__(self) -> None:
        """Raises UsageError for an unprotected address beyond this machine."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("SPECSCOPE_TLS_CERT and SPECSCOPE_TLS_KEY go together")
        if self.tls_client_ca and not self.tls_cert:
            raise UsageError("SPECSCOPE_TLS_CLIENT_CA needs SPECSCOPE_TLS_CERT and its key")
        if self.insecure or (self.tokens and self.tls_cert):
            return
        for address in (self.listen, self.http):
            host_and_port(address)
            if not is_loopback(address):
                raise UsageError(
                    f"anybody could write and read at {address}: set SPECSCOPE_TOKENS, "
                    "SPECSCOPE_TLS_CERT and SPECSCOPE_TLS_KEY, or say --insecure"
                )

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        store: str | None = None,
        listen: str | None = None,
        http: str | None = None,
        insecure: bool = False,
    ) -> ServiceSettings:
        """Raises UsageError for an unknown SPECSCOPE_* name, a missing or read-only store, an
        invalid or unprotected address, an invalid token, or an invalid number of bytes."""
        insecure_ = environ.get("SPECSCOPE_INSECURE", "off").lower()
        if insecure_ not in ("on", "off", ""):
            raise UsageError(f"SPECSCOPE_INSECURE={insecure_!r} is neither on nor off")
        settings = cls(
            store=store_dsn(environ, store),
            listen=listen or environ.get("SPECSCOPE_LISTEN") or LISTEN,
            http=http or environ.get("SPECSCOPE_HTTP") or HTTP,
            apply_token=apply_token(environ),
            synced=_on(environ, "SPECSCOPE_STORE_SYNC", True),
            min_free=_bytes(environ, "SPECSCOPE_STORE_MIN_FREE_BYTES", MIN_FREE_BYTES),
            tokens=_path(environ, "SPECSCOPE_TOKENS"),
            tls_cert=_path(environ, "SPECSCOPE_TLS_CERT"),
            tls_key=_path(environ, "SPECSCOPE_TLS_KEY"),
            tls_client_ca=_path(environ, "SPECSCOPE_TLS_CLIENT_CA"),
            metrics=environ.get("SPECSCOPE_METRICS_LISTEN") or None,
            insecure=insecure or insecure_ == "on",
        )
        if settings.store.startswith(("http:", "https:")):
            raise UsageError(
                f"{settings.store} can only be read from: a service's own store is chdb:///path "
                "or clickhouse://user@host/db"
            )
        for address in filter(None, (settings.listen, settings.http, settings.metrics)):
            host_and_port(address)
        return settings


def store_dsn(environ: Mapping[str, str], given: str | None = None) -> str:
    """The store's destination: the argument, or the environment's.

    Raises UsageError without one, or for an unknown SPECSCOPE_* name.
    """
    try:
        check(environ)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    where = given or environ.get("SPECSCOPE_STORE")
    if not where:
        raise UsageError("no store: --store chdb:///path or SPECSCOPE_STORE")
    return where


def apply_token(environ: Mapping[str, str]) -> str:
    """The token for changes of policies; empty if none is set.

    Raises UsageError for an invalid token, without repeating it.
    """
    token = environ.get("SPECSCOPE_APPLY_TOKEN", "")
    if not all("!" <= letter <= "~" for letter in token):
        raise UsageError(
            "SPECSCOPE_APPLY_TOKEN may have printable ASCII alone, no space and no end of line"
        )
    return token


def _on(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name) or ("on" if default else "off")
    if text not in ("on", "off"):
        raise UsageError(f"{name} must be on or off, not {text!r}")
    return text == "on"


def _bytes(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name} must be a number of bytes, not {text!r}")
    return int(text)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of host:port; port 0 lets the system choose.

    Raises UsageError for other text.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
