"""The boot record of this start, from an adapter's fields and the process."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specscope_hook.clock import SystemClock
from specscope_hook.records import Boot
from specscope_hook.ring_records import LAYOUT
from specscope_hook.settings import HookSettings

_EPOCH = (  # what makes evidence from one start valid for another
    "engine",
    "engine_version",
    "target",
    "draft",
    "quantisation",
    "method",
    "k_max",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "gpu_type",
    "driver",
)

_CONFIGURATION = ("method", "draft", "k_max", "k_schedule")
CONFIGURATION_BYTES = 8192  # of its JSON; a ring's header keeps 16 KiB in all


def hook_version() -> str:
    """Version of the distribution that carries the hook; `unknown` if none is installed."""
    for distribution in ("specscope", "specscope-hook"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "unknown"


def new_boot(settings: HookSettings, **known: Any) -> Boot:
    """A boot record with a new identifier.

    known: fields of records.Boot; at least engine, engine_version and target. Defaults are size 1,
    role both and method none. `configuration` may be a mapping, which is stored as canonical JSON
    with its digest. Without it, the configuration consists of the other fields about speculation.
    """
    values: dict[str, Any] = {
        "replica": settings.replica,
        "boot": secrets.token_hex(8),
        "started_at": SystemClock.unix_ns(),
        "host": socket.gethostname(),
        "hook_version": hook_version(),
        "method": "none",
        "k_max": 0,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": 1,
        "expert_parallel": 1,
        "rank": 0,
        "role": "both",
        "gpu_uuids": [],
        "price_per_hour": settings.price_per_hour,
        "epoch": "",
        "layout_hash": LAYOUT.hash,
        **known,
    }
    described = values.get("configuration")
    if described is None:
        described = {name: values.get(name) for name in _CONFIGURATION}
    values["configuration"], values["configuration_digest"] = canonical(described)
    boot = Boot(**values)
    return Boot(**{**values, "epoch": values["epoch"] or epoch_of(boot)})


def canonical(configuration: Any) -> tuple[str | None, str]:
    """Canonical JSON of a configuration, and its digest, 12 hexadecimal digits.

    Keys are sorted; a value without a JSON type is written as text. The text is None if it does not
    fit a ring's header; the digest still covers all of it.
    """
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), default=str)
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
    return (text if len(text.encode(errors="replace")) <= CONFIGURATION_BYTES else None), digest


def epoch_of(boot: Boot) -> str:
    """Hash of engine, versions, models and hardware, 12 hexadecimal digits."""
    values = asdict(boot)
    known = [values[name] for name in _EPOCH]
    if boot.k_schedule is not None:  # most engines have none, and keep the hash that they had
        known.append(boot.k_schedule)
    text = json.dumps(known).encode()
    return hashlib.blake2b(text, digest_size=6).hexdigest()
