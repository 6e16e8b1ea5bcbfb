"""Policies that nobody should write, and what must hold of each: it is refused by name, or it can
be followed."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

from specscope.service.policies import proposed
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

SEEDS: tuple[dict[str, Any], ...] = (
    {"policy": 3, "kind": "table", "seed": 7, "arms": [], "table": [], "default_k": 4},
    {
        "policy": 4, "kind": "blocks", "seed": 1 << 63, "arms": [{"name": "k0"}, {"name": "k4"}],
        "block_ms": 60_000, "burn_in_ms": 500, "first_pair": 9, "share": 0.5, "default_k": 2,
        "table": [{"class": "sql", "context": [0, 512], "batch": [1, None], "k": 3}],
        "guardrail": {"gap_p95_ms": 40.0, "accept_drop": 0.2},
    },
    {
        "policy": 5, "kind": "blocks", "block_ms": 1000, "default_k": 1,
        "arms": [{"name": "current"}, {"name": "current+x", "cells": [{"k": 0, "queue": [3, 9]}]}],
        "table": [{"output": [None, 64], "k": 8}],
    },
)  # fmt: skip

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 255, 256, 2**31, 2**32, 2**64, 10**400, -(10**400), 0.5, 1e308,
    -1e308, float("nan"), float("inf"), "", "k", "k-1", "k99999999999", "current+", "\0", "\ud800",
    "9" * 5000, [], [[]], [None], [1, 2, 3], [5, 1], {}, {"k": {}}, [{"name": "k1"}] * 300,
    "e" * 70_000,
)  # fmt: skip
NAMES = (
    *SEEDS[1], "k", "class", "context", "output", "batch", "queue", "name", "cells", "detach",
)  # fmt: skip


def odd_policy(draw: random.Random) -> str:
    """The text of a policy with values put, taken away, or torn."""
    body = json.loads(json.dumps(draw.choice(SEEDS)))
    for _ in range(draw.choice((1, 1, 2, 4))):
        _change(body, draw)
    text = json.dumps(body)
    if draw.random() < 0.2:
        at = draw.randrange(len(text))
        text = (
            text[:at] + draw.choice(("", "}", "]", "9" * 50, "[" * 3000, "\u2028")) + text[at + 1 :]
        )
    return text


def _change(value: Any, draw: random.Random) -> None:
    if isinstance(value, dict):
        name = draw.choice([*value, draw.choice(NAMES)])
        inner = value.get(name)
        if isinstance(inner, dict | list) and inner and draw.random() < 0.6:
            _change(inner, draw)
        elif draw.random() < 0.15:
            value.pop(name, None)
        else:
            value[name] = deepcopy(draw.choice(ODD))
    elif isinstance(value, list) and value:
        at = draw.randrange(len(value))
        if isinstance(value[at], dict | list) and value[at] and draw.random() < 0.6:
            _change(value[at], draw)
        else:
            value[at] = deepcopy(draw.choice(ODD))


def check(text: str) -> str:
    """Propose it as an operator would, and follow it as a hook would. Returns how it ended."""
    try:
        number = json.loads(text)["policy"]
    except (ValueError, TypeError, KeyError, RecursionError):
        number = 3
    if not isinstance(number, int) or isinstance(number, bool):
        number = 3
    try:
        proposed(number, text, "", 0)
    except PolicyError:
        return "refused"
    gate = Gate.from_policy(text)
    for arm in {"current", *(arm.name for arm in gate.arms)}:
        assert 0 <= gate.k("sql", 100, 10, 3, 0, arm) <= 255
    gate.arm("r", "b", gate.first_pair)
    return "followed"
