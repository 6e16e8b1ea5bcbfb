"""Apply policies through the service that owns the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope.errors import MissingExtra, NumberTaken, ServiceError, UsageError, install_command
from specscope.settings import apply_token, host_and_port
from specscope_agent.channel import Security, refusal
from specscope_agent.errors import AgentError
from specscope_hook.errors import SettingsError

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Remote:
    """A service that accepts policies from clients with its token."""

    address: str
    token: str = field(default="", repr=False)
    """Empty: the one that `security` names a file of."""
    security: Security = field(default_factory=Security)

    @classmethod
    def chosen(cls, environ: Mapping[str, str], given: str | None, dsn: str) -> Remote | None:
        """The given service, or the environment's if the store is read-only; None to write the
        store directly.

        Raises UsageError for an invalid address, without a token, or if the token would cross a
        network unencrypted.
        """
        read_only = dsn.startswith("http")
        address = given or (environ.get("SPECSCOPE_SERVICE") if read_only else None)
        if not address:
            return None
        host_and_port(address)
        token = apply_token(environ)
        try:
            security = Security.from_env(environ)
        except SettingsError as error:
            raise UsageError(str(error)) from error
        if not token and security.token is None:
            raise UsageError(
                "no token: set SPECSCOPE_APPLY_TOKEN to the service's value, or "
                "SPECSCOPE_TOKEN_FILE to a file of it"
            )
        if not security.trusts(address):
            raise UsageError(f"the token would go to {address} unencrypted: set SPECSCOPE_TLS_CA")
        return cls(address, token, security)

    def apply(self, body: Mapping[str, Any], note: str) -> int:
        """Put a policy in force; returns its number after the store has it.

        Raises NumberTaken if another policy has the number, UsageError for an invalid policy,
        ServiceError if the service refuses it or is unreachable.
        """
        wire = _wire()
        policy = wire.Policy(number=body["policy"], json=json.dumps(body), note=note)
        return int(self._call("Apply", policy).number)

    def keep(self, replay: str) -> int:
        """Store the verdicts of a replay's JSON result; returns their number.

        Raises UsageError for an invalid result, ServiceError if the service refuses it or is
        unreachable.
        """
        return int(self._call("Keep", _wire().Replay(json=replay)).verdicts)

    def _call(self, method: str, message: Any) -> Any:
        import grpc

        from specscope_agent.telemetry_pb2_grpc import TelemetryStub

        try:
            given = self.security.metadata()
            channel_ = self.security.channel(self.address)
        except AgentError as error:
            raise ServiceError(str(error)) from error
        metadata = (("authorization", f"Bearer {self.token}"),) if self.token else given
        with channel_ as channel:
            stub: Any = TelemetryStub(channel)  # type: ignore[no-untyped-call]
            try:
                return getattr(stub, method)(message, timeout=TIMEOUT_S, metadata=metadata)
            except grpc.RpcError as error:
                raise self._refused(error.code().name, error.details() or "") from error

    def _refused(self, code: str, details: str) -> Exception:
        said = " ".join(details.split())
        match code:
            case "ALREADY_EXISTS":
                return NumberTaken(said)
            case "INVALID_ARGUMENT":
                return UsageError(said)
            case "UNAVAILABLE":
                return ServiceError(refusal(self.address, code, details))
            case "DEADLINE_EXCEEDED":
                return ServiceError(
                    f"the service at {self.address} did not answer within {TIMEOUT_S:.0f} s: see "
                    "`specscope gate show` before you try again"
                )
            case "UNIMPLEMENTED":
                return ServiceError(
                    f"the service at {self.address} is too old for this call: update it"
                )
        return ServiceError(f"the service at {self.address} refuses: {said}")


def _wire() -> Any:
    """Import the message types. Raises MissingExtra without gRPC."""
    try:
        import grpc  # noqa: F401

        from specscope_agent import telemetry_pb2
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"a write through a service needs {error.name}: {install_command('agent')}"
        ) from error
    return telemetry_pb2
