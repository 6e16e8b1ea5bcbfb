"""The possible differences between the sides of a crossover, and the declared ones.

A crossover compares declared differences; all other settings must be equal on both sides. Two
differences need no declaration. The draft length names a configuration, and a target-only side
belongs to every crossover.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specscope_hook.records import Boot as BootRecord

Boot = Mapping[str, Any]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "engine": ("engine",),
    "version": ("engine_version",),
    "target": ("target",),
    "quantisation": ("quantisation",),
    "placement": ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel"),
    "hardware": ("gpu_type", "driver"),
    "drafter": ("method", "draft"),
    "controller": ("k_schedule",),
}
"""By the word that declares it: the columns of a Boot that tell a part."""
CONFIGURATION = "configuration."
"""Before the name of a key of the Boot's configuration, such as configuration.graphs."""

LOSSY = "lossy"
LOSSY_RULES = frozenset({"fly", "lenient", "synthetic", "typical", "typical_acceptance_sampler"})
"""Rules of acceptance that change what requests get."""
# Where an engine's configuration names its rule (vLLM, TensorRT-LLM), and SGLang's thresholds.
_ACCEPTANCE = re.compile(r"(.*\.)?speculative.*(rejection|accept).*")
_THRESHOLD = re.compile(r"(.*\.)?speculative_accept_threshold_(single|acc)")

_OF_SPECULATION = ("drafter", "controller")
_COLUMNS_OF_BOOT = BootRecord.__dataclass_fields__
# Keys of a configuration that one of the parts above already tells, or that are a draft length.
_TOLD = re.compile(
    rf"quantization|adaptive_.*|{'|'.join(_COLUMNS_OF_BOOT)}"
    r"|speculative\.(method|model|revision|code_revision|quantization|draft_.*|prompt_lookup_.*"
    r"|.*(num_speculative_tokens|num_steps|per_batch|adaptive).*)"
)


def declarable(part: str) -> bool:
    """Whether a word names a part that a policy may declare to differ."""
    return part in COLUMNS or (part.startswith(CONFIGURATION) and part != CONFIGURATION)


def declared(policy: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that a crossover's policy declares; unknown words are ignored."""
    raw = policy.get("crossover")
    words = raw.get("differs") if isinstance(raw, dict) else None
    listed = words if isinstance(words, list) else []
    return tuple(word for word in listed if isinstance(word, str) and declarable(word))


def undeclared(
    left: Sequence[Boot], right: Sequence[Boot], declared_parts: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Parts in which no boot of one side equals any boot of the other, with their values.

    Settings of speculation are compared only if both sides speculate. An unknown value is no
    difference.
    """
    allowed = {*declared_parts, "controller"}  # a table of the engine's own has another name
    found = {}
    for part in sorted({*COLUMNS, *_keys(left), *_keys(right)} - allowed):
        ones, others = (_values(boots, part) for boots in (left, right))
        if ones and others and not ones & others:
            found[part] = tuple(sorted(ones | others))
    return found


def suffix(boot: Boot, boots: Sequence[Boot], declared_parts: Iterable[str]) -> str:
    """The suffix of a configuration's name for declared differences, such as ` drafter=eagle`.

    boots: all boots of the crossover. Parts that are equal in all of them are left out. A lossy
    acceptance rule is always named.
    """
    words = []
    for part in declared_parts:
        values = _values(boots, part)
        (own, *_) = [*_values([boot], part), ""]
        if part != "controller" and len(values) > 1 and own:
            words.append(f"{part}={own}")
    if lossy(boot):
        words.append(LOSSY)
    return f" {','.join(words)}" if words else ""


def lossy(boot: Boot) -> str:
    """The acceptance rule of an engine if it changes the output distribution, such as
    rejection_sample_method=fly; empty otherwise."""
    if not speculates(boot):
        return ""
    for key, text in sorted(_flat(boot).items()):
        name, value = key.rpartition(".")[2], text.strip('"')
        if _ACCEPTANCE.fullmatch(key) and value.lower() in LOSSY_RULES:
            return f"{name}={value}"
        if _THRESHOLD.fullmatch(key) and _below_one(value):
            return f"{name}={value}"
    return ""


def _below_one(text: str) -> bool:
    try:
        return float(text) < 1.0
    except ValueError:
        return False


def speculates(boot: Boot) -> bool:
    """Whether an engine was started with speculation."""
    return bool(boot["method"] != "none")


def columns_of(parts: Iterable[str]) -> set[str]:
    """The columns of a boot that hold these parts."""
    return {column for part in parts for column in COLUMNS.get(part, ())}


def _values(boots: Iterable[Boot], part: str) -> set[str]:
    values = set()
    for boot in boots:
        if (part in _OF_SPECULATION or ".speculative." in part) and not speculates(boot):
            continue
        if part in COLUMNS:
            known = [str(one) for name in COLUMNS[part] if (one := boot.get(name)) is not None]
            value = "/".join(known)
        else:
            value = _flat(boot).get(part.removeprefix(CONFIGURATION), "")
        if value:
            values.add(value)
    return values


def _keys(boots: Iterable[Boot]) -> set[str]:
    keys = {key for boot in boots for key in _flat(boot)}
    return {f"{CONFIGURATION}{key}" for key in keys if not _TOLD.fullmatch(key)}


def _flat(boot: Boot) -> dict[str, str]:
    """The flattened keys of a boot's configuration, with dots between levels."""
    try:
        body = json.loads(boot.get("configuration") or "{}")
    except ValueError:
        return {}
    flat: dict[str, str] = {}
    stack = [("", body)]
    while stack:
        before, value = stack.pop()
        if isinstance(value, dict):
            stack += [
                (f"{before}.{key}" if before else str(key), one) for key, one in value.items()
            ]
        elif value is not None and before:
            flat[before] = json.dumps(value, sort_keys=True)
    return flat
