"""Checks of a running deployment through its store's read endpoint, and of its Grafana.

The store's checks need the extra `server`; Grafana's needs the standard library only. Each check
reads; none changes anything.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specscope.doctor.check import Check
from specscope.errors import install_command

if TYPE_CHECKING:
    from specscope.store.connection import Store

PATIENCE_S = 5.0
SKEW_S = 5.0  # rows an hour ahead are refused; a guardrail and a block's bounds suffer before
DAY_NS = 24 * 3600 * 10**9
FOLLOWS_NS = 60 * 10**9  # a policy reaches an engine within seconds


def store(environment: Mapping[str, str]) -> Iterator[Check]:
    """The store behind SPECSCOPE_STORE, if it is a server: credential, schema, clock, versions of
    hooks, and whether replicas follow the newest policy."""
    where = environment.get("SPECSCOPE_STORE", "")
    if urlsplit(where).scheme not in ("http", "https", "clickhouse", "clickhouses"):
        return
    try:
        from specscope.errors import SpecscopeError
        from specscope.store.connection import Store
    except ModuleNotFoundError as error:
        remedy = install_command("server")
        yield Check("store's contents", "missing", f"without {error.name}", remedy)
        return
    try:
        with Store.open(where, create=False) as opened:
            yield Check("store's credential", "ok", "reads")
            for check in (_schema, _clock, _hook_versions, _followed):
                yield from check(opened)
    except SpecscopeError as error:
        remedy = "check the address, user and password of SPECSCOPE_STORE, and that it is up"
        yield Check("store's contents", "failed", str(error), remedy)


def _schema(store: Store) -> Iterator[Check]:
    from specscope.errors import StoreError
    from specscope.store.tables import LAYOUTS

    absent = []
    for table in LAYOUTS:
        try:
            store.rows(f"SELECT 1 FROM {table} LIMIT 0")
        except StoreError:
            absent.append(table)
    if absent:
        remedy = "start `specscope serve` of this version: it migrates the store"
        yield Check("store's schema", "failed", f"without {', '.join(absent)}", remedy)
    else:
        yield Check("store's schema", "ok", f"{len(LAYOUTS)} tables")


def _clock(store: Store) -> Iterator[Check]:
    before = time.time_ns()
    (row,) = store.rows("SELECT toUnixTimestamp64Nano(now64(9)) AS now")
    after = time.time_ns()
    ahead = (row["now"] - (before + after) // 2) / 1e9
    if abs(ahead) - (after - before) / 2e9 > SKEW_S:
        detail = f"the store's is {ahead:+.0f} s from this machine's"
        yield Check("clocks", "warning", detail, "synchronise both machines (NTP)")
    else:
        yield Check("clocks", "ok", "the store's and this machine's agree")


def _hook_versions(store: Store) -> Iterator[Check]:
    from specscope import queries
    from specscope.queries.period import since_condition
    from specscope_hook.boot import hook_version

    own = hook_version()
    since = since_condition("started_at", time.time_ns() - DAY_NS)
    newest: dict[str, str] = {}
    for row in store.rows(queries.starts(since)):
        newest[row["replica"]] = row["hook_version"]
    others = sorted({version for version in newest.values() if version != own})
    if others:
        detail = f"hooks of {', '.join(others)}, this is {own}"
        remedy = "columns that the older one does not know stay unknown: update it when you can"
        yield Check("versions", "warning", detail, remedy)
    elif newest:
        plural = "" if len(newest) == 1 else "s"
        yield Check("versions", "ok", f"{len(newest)} replica{plural} with hooks of {own}")


def _followed(store: Store) -> Iterator[Check]:
    from specscope.policy.following import replicas_by_policy
    from specscope.policy.stored import newest_with_table, read_policies

    policy, now = newest_with_table(read_policies(store)), time.time_ns()
    if policy is None or now - policy.created_at < FOLLOWS_NS:
        return
    followed = replicas_by_policy(store, now)
    running = sum(map(len, followed.values()))
    behind = [name for number in followed if number != policy.number for name in followed[number]]
    what = f"policy {policy.number}"
    if behind:
        detail = (
            f"{len(behind)} of {running} replicas do not follow it: {', '.join(sorted(behind)[:5])}"
        )
        remedy = "vLLM needs SPECSCOPE_REQUEST_K=on; look at the sidecar's log for a refused policy"
        yield Check(what, "warning", detail, remedy)
    elif running:
        yield Check(what, "ok", f"followed by {running} replica{'s' if running != 1 else ''}")


def grafana(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether Grafana at GRAFANA_URL is up and accepts the token in GRAFANA_TOKEN."""
    url = environment.get("GRAFANA_URL", "").rstrip("/")
    if not url:
        return
    if urlsplit(url).scheme not in ("http", "https"):
        yield Check("Grafana", "refused", "GRAFANA_URL is no http address", "correct it")
        return
    try:
        health = _get(f"{url}/api/health", "")
    except (OSError, ValueError) as error:
        yield Check("Grafana", "failed", _reason(error), "start it, or correct GRAFANA_URL")
        return
    yield Check("Grafana", "ok", f"version {health.get('version', 'unknown')}")
    if token := environment.get("GRAFANA_TOKEN", ""):
        try:
            _get(f"{url}/api/search?limit=1", token)
        except (OSError, ValueError) as error:
            remedy = "make a service account's token that may read and edit dashboards"
            yield Check("Grafana's token", "failed", _reason(error), remedy)
        else:
            yield Check("Grafana's token", "ok", "taken")


def _get(url: str, token: str) -> dict[str, Any]:
    """JSON from Grafana. Raises OSError if it does not answer or refuses, ValueError if the answer
    is not Grafana's."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        body = json.loads(answer.read(1 << 20))
    return body if isinstance(body, dict) else {}


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(getattr(error.reason, "strerror", None) or error.reason)
    return "its answer is not Grafana's" if isinstance(error, ValueError) else str(error)
