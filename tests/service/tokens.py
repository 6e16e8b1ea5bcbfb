"""Tokens of a test's service, as an operator writes them."""

from __future__ import annotations

import hashlib
from pathlib import Path

CERTIFICATES = Path(__file__).parents[1] / "data" / "tls"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write_tokens(path: Path, **rights: str) -> Path:
    """A file of tokens, each called as it is spelt: `NAME="tenant: right right"`, or without a
    tenant; tenant `a` has the replicas that begin with `a-`, and so on."""
    tenants, tokens = set(), []
    for token, text in rights.items():
        tenant, _, words = text.rpartition(": ")
        tenants |= {tenant} - {""}
        quoted = ", ".join(f'"{word}"' for word in words.split())
        tokens.append(
            f'[[token]]\nname = "{token}"\nsha256 = "{digest(token)}"\nrights = [{quoted}]\n'
            + (f'tenant = "{tenant}"\n' if tenant else "")
        )
    lines = [f'[tenant.{name}]\nreplicas = ["{name}-"]\n' for name in sorted(tenants)]
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines + tokens))
    new.rename(path)
    return path
