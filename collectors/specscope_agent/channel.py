"""A gRPC channel to the service: unencrypted on this machine, verified by TLS beyond it.

Each new channel reads the files again, so the next stream uses a renewed token or certificate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specscope_agent.errors import AgentError
from specscope_hook.errors import SettingsError

SYSTEM = "system"

_REMEDIES = {  # what gRPC writes when it finds no service, and what to do
    "Connection refused": "nothing listens there; start the service, or correct the address",
    "lookup failed": "no host has that name",
    "CERTIFICATE_VERIFY_FAILED": "SPECSCOPE_TLS_CA holds no authority that signed its certificate",
    "Hostname Verification": "its certificate is for another name",
    "WRONG_VERSION_NUMBER": "it speaks no TLS; unset SPECSCOPE_TLS_CA",
    "HTTP/2": "something else listens there; correct the address",
    "Socket closed": "it closed the connection; if it asks for TLS, set SPECSCOPE_TLS_CA",
}


@dataclass(frozen=True, slots=True)
class Security:
    """Certificates and token of the connection to the service."""

    ca: Path | None = None
    """Who signs the service's certificate; None and no `system_ca`: no TLS."""
    system_ca: bool = False
    """The machine's own list of authorities is used instead."""
    certificate: Path | None = None
    key: Path | None = None
    """Our own, for a service that asks for them."""
    token: Path | None = None
    """File that holds the bearer token."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Security:
        """Raises SettingsError if half of a pair is missing."""
        ca = environ.get("SPECSCOPE_TLS_CA") or None
        security = cls(
            ca=Path(ca) if ca and ca != SYSTEM else None,
            system_ca=ca == SYSTEM,
            certificate=_path(environ, "SPECSCOPE_TLS_CERT"),
            key=_path(environ, "SPECSCOPE_TLS_KEY"),
            token=_path(environ, "SPECSCOPE_TOKEN_FILE"),
        )
        if (security.certificate is None) != (security.key is None):
            raise SettingsError("SPECSCOPE_TLS_CERT and SPECSCOPE_TLS_KEY go together")
        return security

    @property
    def verifies(self) -> bool:
        """Whether TLS verifies the service."""
        return self.ca is not None or self.system_ca

    def check(self, address: str) -> None:
        """Raises SettingsError for a token that would cross a network unencrypted."""
        if self.token and not self.trusts(address):
            raise SettingsError(
                f"SPECSCOPE_TOKEN_FILE would go to {address} unencrypted: set SPECSCOPE_TLS_CA"
            )

    def trusts(self, address: str) -> bool:
        """Whether policies of the service are trusted: TLS verifies it, or it is on this
        machine."""
        return self.verifies or is_loopback(address)

    def channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> Any:
        """Open a channel. Raises AgentError if a file cannot be read."""
        import grpc  # not before: settings are read and found wrong without it

        if not self.verifies:
            return grpc.insecure_channel(address, options=list(options))
        credentials = grpc.ssl_channel_credentials(
            _read(self.ca), _read(self.key), _read(self.certificate)
        )
        return grpc.secure_channel(address, credentials, options=list(options))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call. Raises AgentError if the token cannot be read."""
        text = _read(self.token)
        if text is None:
            return ()
        token = text.decode("ascii", "replace").strip()
        if not token or not all("!" <= letter <= "~" for letter in token):
            raise AgentError(f"{self.token} holds no token: one line of printable ASCII")
        return (("authorization", f"Bearer {token}"),)


def refusal(address: str, code: str, details: str) -> str:
    """The reason for a failed call, in a line. code, details: gRPC's own."""
    text = " ".join(details.split())
    if not text.startswith(("failed to connect", "errors resolving")):
        return f"the service at {address} answers {code}: {text}"
    known = (remedy for sign, remedy in _REMEDIES.items() if sign in text)
    last_clause = text.rpartition(": ")[2].strip(" ]")
    return f"the service at {address} cannot be reached: {next(known, last_clause)}"


def is_loopback(address: str) -> bool:
    """Whether host:port is a loopback address."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise AgentError(f"{path}: {error.strerror}") from error
