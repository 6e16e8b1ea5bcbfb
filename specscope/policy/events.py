"""Changes of the gate as rows of table `event`, for every screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def policy_event(body: Mapping[str, Any], note: str, at: int) -> dict[str, Any]:
    """The event of a new policy. at: ns since 1970."""
    number = body["policy"]
    detail = {name: body[name] for name in ("restores", "stops", "last_pair") if name in body}
    return event(
        at, kind_of(body), str(number), policy=number, author=body.get("author"), note=note,
        detail=detail,
    )  # fmt: skip


def kind_of(body: Mapping[str, Any]) -> str:
    """The kind of a policy's event (EVENT_KINDS)."""
    if body.get("detach") is True:
        return "detach"
    if "restores" in body:
        return "rollback"
    return "experiment" if "stops" in body or body.get("last_pair") is not None else "policy"


def event(
    at: int,
    kind: str,
    subject: str,
    *,
    replica: str = "",
    epoch: str | None = None,
    policy: int | None = None,
    author: str | None = None,
    note: str = "",
    detail: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A row of table `event`; its record describes the columns."""
    return {
        "at": at,
        "kind": kind,
        "subject": subject,
        "replica": replica,
        "tenant": "",
        "epoch": epoch,
        "policy": policy,
        "author": author or None,
        "note": note,
        "detail": json.dumps(detail or {}, sort_keys=True),
    }
