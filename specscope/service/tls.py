"""Certificates of the service for both ports; renewed ones are loaded without a restart."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from specscope.errors import UsageError


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the service's certificate chain, its key, and the authority of client
    certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """If given, a client without a certificate that this one signed is not let in."""

    def for_grpc(self) -> Any:
        """Server credentials. Raises UsageError if the files are invalid."""
        self.for_http()  # OpenSSL says in words what is wrong with them; gRPC does not
        last = [self._contents()]

        def renewed() -> Any:
            try:
                contents = self._contents()
            except UsageError:
                return None  # half renewed: those that are in use stay
            if contents == last[0]:
                return None
            last[0] = contents
            return _configuration(*contents)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(*last[0]),
            renewed,
            require_client_authentication=self.client_ca is not None,
        )

    def for_http(self) -> ssl.SSLContext:
        """A context for an HTTP server. Raises UsageError if the files are invalid."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the current files for new connections. Raises UsageError."""
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            where = f"{self.certificate}, {self.key}" + (
                f", {self.client_ca}" if self.client_ca else ""
            )
            why = getattr(error, "reason", None) or error.strerror or str(error)
            raise UsageError(f"certificate and key cannot be used ({where}): {why}") from error

    def stamp(self) -> tuple[int, ...]:
        """A value that changes with the files."""
        files = (self.certificate, self.key, self.client_ca)
        return tuple(path.stat().st_mtime_ns for path in files if path)

    def _contents(self) -> tuple[bytes, bytes, bytes | None]:
        try:
            return (
                self.key.read_bytes(),
                self.certificate.read_bytes(),
                self.client_ca.read_bytes() if self.client_ca else None,
            )
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from error


def _configuration(key: bytes, certificate: bytes, client_ca: bytes | None) -> Any:
    return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca)
