"""Access control: bearer tokens in a file, which is reloaded when it changes.

    [tenant.chat]
    replicas = ["chat-"]            # its replicas' names begin with one of these

    [[token]]
    name = "sidecars of chat"       # for log lines
    sha256 = "9f86d081884c7d65..."  # of the token; the token itself is in no file of the service
    tenant = "chat"                 # left out: every replica
    rights = ["publish"]            # publish, read, metrics, apply

A tenant is a set of replica names, given by prefixes; no two tenants share a prefix. So no table
needs a column for tenants, and no row can claim another tenant's replica.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import logging
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specscope.errors import UsageError

log = logging.getLogger(__name__)

PUBLISH, READ, METRICS, APPLY = "publish", "read", "metrics", "apply"
RIGHTS = frozenset({PUBLISH, READ, METRICS, APPLY})
LOOK_S = 1.0  # how often the file is looked at; a token that was taken away works that long

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one token."""

    name: str
    rights: frozenset[str]
    prefixes: tuple[str, ...] = ("",)
    """Of the replicas that it may write and read; ("",) is all of them."""
    digest: bytes = field(default=b"", repr=False)
    """Of the token: a new one in the same line is another grant."""

    def may_name(self, replica: str) -> bool:
        """Whether a replica belongs to its tenant."""
        return replica.startswith(self.prefixes)

    @property
    def restricted(self) -> bool:
        """Whether it is limited to some replicas."""
        return "" not in self.prefixes


class Denied(Exception):
    """The caller lacks the right; `known`: whether the service knows its token."""

    def __init__(self, text: str, *, known: bool) -> None:
        super().__init__(text)
        self.known = known


ANYBODY = Grant("anybody", frozenset({PUBLISH, READ}))
"""Where no tokens are asked for: on this machine alone, or by an explicit word."""


@dataclass(slots=True)
class Access:
    """The tokens of one service."""

    path: Path | None = None
    """File of tokens; None: nobody is asked for one."""
    apply_token: str = field(default="", repr=False)
    """One more token, with the right to apply alone."""
    _grants: dict[bytes, Grant] = field(default_factory=dict, repr=False)
    _held: frozenset[Grant] = frozenset()
    _stamp: tuple[int, int, int] | None = None
    _looked_at: float = 0.0

    def __post_init__(self) -> None:
        """Raises UsageError if the file is unreadable or invalid."""
        if self.path:
            self._stamp = _stamp(self.path)
            self._hold(read_tokens(self.path))

    def _hold(self, grants: dict[bytes, Grant]) -> None:
        self._grants, self._held = grants, frozenset(grants.values())

    def grant(self, right: str, *credentials: str) -> Grant:
        """The grant of a caller who asks for a right.

        credentials: values of the caller's Authorization header; only a single value is valid.
        Raises Denied, which never repeats them.
        """
        self._look()
        token = _token(credentials[0]) if len(credentials) == 1 else None
        grant = self._of(token) if token else None
        if grant is None and self.path is None and right in ANYBODY.rights:
            return ANYBODY
        if grant is None and token is None:
            raise Denied(f"a token is needed to {right}, in the header Authorization", known=False)
        if grant is None:
            raise Denied("this service does not know the token", known=False)
        if right not in grant.rights:
            raise Denied(f"the token {grant.name!r} has no right to {right}", known=True)
        return grant

    def holds(self, grant: Grant) -> bool:
        """Whether an earlier grant is still valid."""
        self._look()
        return grant is ANYBODY or grant in self._held

    @property
    def takes_policies(self) -> bool:
        """Whether any token has the right to apply."""
        self._look()
        return bool(self.apply_token) or any(APPLY in g.rights for g in self._grants.values())

    def _of(self, token: str) -> Grant | None:
        digest = hashlib.sha256(token.encode()).digest()
        # Digests are compared, so the time that it takes says nothing of a token.
        if self.apply_token and digest == hashlib.sha256(self.apply_token.encode()).digest():
            return Grant("SPECSCOPE_APPLY_TOKEN", frozenset({APPLY}))
        return self._grants.get(digest)

    def _look(self) -> None:
        """Reload the file if it changed. An invalid file is logged, and the old one stays valid."""
        now = time.monotonic()
        if self.path is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            stamp = _stamp(self.path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._hold(read_tokens(self.path))
        except UsageError as error:
            log.warning("%s; the previous tokens stay valid", error)
        else:
            log.info("%s: %d tokens", self.path, len(self._grants))


def read_tokens(path: Path) -> dict[bytes, Grant]:
    """The grants of a file, by the digest of their tokens.

    Raises UsageError, in one line, if the file is unreadable or invalid.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        return _grants(raw)
    except OSError as error:
        raise UsageError(f"tokens {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"tokens {path}: {_said(error)}") from error


def _grants(raw: Mapping[str, Any]) -> dict[bytes, Grant]:
    _only(raw, {"tenant", "token"}, "the file")
    tenants = {name: _prefixes(name, tenant) for name, tenant in raw.get("tenant", {}).items()}
    _check_apart(tenants)
    grants: dict[bytes, Grant] = {}
    for token in raw.get("token", []):
        _only(token, {"name", "sha256", "tenant", "rights"}, "a token")
        name, digest, rights = str(token["name"]), token["sha256"], frozenset(token["rights"])
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"token {name!r}: sha256 is not 64 hexadecimal digits")
        if not rights or rights - RIGHTS:
            raise ValueError(f"token {name!r}: rights are {', '.join(sorted(RIGHTS))}")
        if "tenant" in token and token["tenant"] not in tenants:
            raise ValueError(f"token {name!r}: there is no tenant {token['tenant']!r}")
        prefixes = tenants[token["tenant"]] if "tenant" in token else ("",)
        if APPLY in rights and "tenant" in token:
            raise ValueError(f"token {name!r}: a policy is for all tenants, and so is its token")
        key = bytes.fromhex(digest)
        if key in grants:
            raise ValueError(f"token {name!r}: the same token appears twice")
        grants[key] = Grant(name, rights, prefixes, key)
    if not grants:
        raise ValueError("it names no token")
    return grants


def _prefixes(name: str, tenant: Mapping[str, Any]) -> tuple[str, ...]:
    _only(tenant, {"replicas"}, f"tenant {name!r}")
    prefixes = tuple(tenant["replicas"])
    if not prefixes or not all(isinstance(p, str) and _NAME.fullmatch(p) for p in prefixes):
        raise ValueError(
            f"tenant {name!r}: replicas are prefixes of letters, digits, dots, dashes, underscores"
        )
    return prefixes


def _check_apart(tenants: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse two tenants whose prefixes overlap."""
    owners = [(prefix, name) for name, prefixes in tenants.items() for prefix in prefixes]
    for (long, one), (short, other) in itertools.permutations(owners, 2):
        if one != other and long.startswith(short):
            raise ValueError(f"{long!r} of tenant {one!r} begins as {short!r} of {other!r}")


def _only(table: Mapping[str, Any], names: set[str], what: str) -> None:
    if wrong := sorted(set(table) - names):
        raise ValueError(f"{what} says {wrong[0]!r}, which is unknown")


def _token(credential: str) -> str | None:
    """The token of an Authorization header: `Bearer TOKEN`, or `Basic` with it as the password."""
    kind, _, rest = credential.partition(" ")
    if kind == "Bearer":
        return rest or None
    if kind == "Basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2] or None
        except ValueError:
            return None
    return None


def _stamp(path: Path) -> tuple[int, int, int]:
    """A value that changes with the file. It includes the inode, because Kubernetes swaps a mounted
    secret by a link."""
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"tokens {path}: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def _said(error: Exception) -> str:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split())
