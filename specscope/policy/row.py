"""A policy as one row of the store, with its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from specscope_agent.schemas import schema
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate


def policy_row(body: Mapping[str, Any], note: str, created_at: int) -> pa.Table:
    """One row of table `policy`; created_at in ns since 1970.

    Raises PolicyError if no hook can follow the policy, or if a value does not fit its column.
    """
    gate = Gate.from_policy(dict(body))
    row = {
        "policy": gate.policy,
        "created_at": created_at,
        "kind": gate.kind,
        "seed": gate.seed,
        "arms": [arm.name for arm in gate.arms],
        "block_ms": gate.block_ms,
        "burn_in_ms": body.get("burn_in_ms"),
        "first_pair": gate.first_pair,
        "last_pair": gate.last_pair,
        "author": body.get("author"),
        "note": note,
    }
    try:
        row["table"] = json.dumps(body, sort_keys=True, allow_nan=False)
        return pa.Table.from_pylist([row], schema=schema("policy"))
    except (ValueError, TypeError, OverflowError) as error:
        raise PolicyError(f"not a policy: {error}") from error
