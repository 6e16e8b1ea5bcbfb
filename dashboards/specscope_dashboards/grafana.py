"""Puts the dashboards into a running Grafana, into one folder, over what was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from grafana_client.api import GrafanaApi
from grafana_client.client import GrafanaClientError, GrafanaException, GrafanaUnauthorizedError
from niquests.exceptions import RequestException

from specscope_dashboards.errors import GrafanaError

FOLDER = "specscope"
TIMEOUT_SECONDS = 15.0  # a Grafana behind a slow proxy still answers in this


@dataclass(frozen=True, slots=True)
class Pushed:
    """A dashboard as Grafana has it now."""

    uid: str
    url: str
    version: int


def push(
    dashboards: Mapping[str, dict[str, Any]],
    url: str,
    token: str | None = None,
    folder: str = FOLDER,
) -> list[Pushed]:
    """Create or replace each dashboard, by its uid.

    url: where Grafana is, with user and password in it where there is no token.
    Raises GrafanaError where it cannot be reached, does not know us, or refuses one.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GrafanaError(f"{url} is not where Grafana could be: http://host:3000")
    place = f"{parts.scheme}://{parts.hostname}"  # for a person: without the password
    path = f"{parts.path.rstrip('/')}/" if parts.path.strip("/") else ""
    grafana: Any = GrafanaApi.from_url(parts._replace(path=path).geturl(), token, TIMEOUT_SECONDS)
    try:
        _ensure_folder(grafana, folder)
        return [_push_one(grafana, dashboard, folder) for dashboard in dashboards.values()]
    except GrafanaUnauthorizedError as error:
        raise GrafanaError(f"{place} does not know this token or password") from error
    except GrafanaException as error:
        raise GrafanaError(f"{place} refused: {error.message}") from error
    except (RequestException, OSError) as error:
        raise GrafanaError(f"{place} cannot be reached: {_reason(error)}") from error
    finally:
        grafana.client.s.close()


def _ensure_folder(grafana: Any, uid: str) -> None:
    try:
        grafana.folder.get_folder(uid)
    except GrafanaClientError as error:
        if error.status_code != 404:
            raise
        grafana.folder.create_folder(title=uid, uid=uid)


def _push_one(grafana: Any, dashboard: dict[str, Any], folder: str) -> Pushed:
    answer = grafana.dashboard.update_dashboard(
        {
            "dashboard": dashboard,
            "folderUid": folder,
            "overwrite": True,
            "message": "specscope dashboards push",
        }
    )
    return Pushed(answer["uid"], answer["url"], answer["version"])


def _reason(error: BaseException) -> str:
    """The innermost cause, in one line."""
    while error.__context__ is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__
