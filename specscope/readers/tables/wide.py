"""Tables with one column per arm: `batch_size, baseline_tok_s, eagle_tok_s`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from specscope.readers.tables import columns
from specscope.readers.tables.column_rules import metric_of
from specscope.readers.tables.names import k_of, role_of

_MEASURES = sorted(
    {
        alias
        for group in (columns.HIGHER, columns.LOWER)
        for names in group.values()
        for alias in names
    },
    key=lambda alias: -len(alias),
)


def arms_in(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Column to (arm, measure), if the columns name several arms and one of them is a baseline."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        measure = next((alias for alias in _MEASURES if name.endswith(f"_{alias}")), None)
        if measure is not None and name not in _MEASURES:
            found[name] = (name.removesuffix(f"_{measure}"), measure)
    arms = {arm for arm, _ in found.values()}
    baseline = any(role_of(arm, None) == "target_only" for arm in arms)
    return found if len(arms) > 1 and baseline else {}


def unfolded(
    row: Mapping[str, str], arms: Mapping[str, tuple[str, str]]
) -> Iterator[dict[str, str]]:
    """One row per arm, with the columns that all arms share."""
    shared = {name: value for name, value in row.items() if name not in arms}
    by_arm: dict[str, dict[str, str]] = {}
    for name, (arm, measure) in arms.items():
        by_arm.setdefault(arm, {})[measure] = row.get(name, "")
    speculative = [arm for arm in by_arm if role_of(arm, k_of(arm)) not in ("target_only", "k0")]
    for arm, measures in by_arm.items():
        # An acceptance that stands once in the row is that of the one arm that speculated.
        alone = arm in speculative and len(speculative) == 1
        own = shared if alone else {n: v for n, v in shared.items() if not _outcome(n)}
        yield {**own, "arm": arm, **measures}


def _outcome(name: str) -> bool:
    listed = any(name in names for names in columns.OUTCOME.values())
    return listed or metric_of(name) in columns.OUTCOME
