"""Connect to OpenAI-compatible servers and read their models."""

from __future__ import annotations

import httpx

from specscope.errors import InputError


def asking(timeout_s: float) -> httpx.AsyncClient:
    """A client for measurements: unlimited concurrency, no proxy, a new connection per request.

    Servers close idle connections silently, and llama.cpp sometimes right after an answer. A
    request on such a connection would be lost. timeout_s: longest time without a byte
    """
    return httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=10.0),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,
    )


class Served:
    """An OpenAI-compatible server under one base address."""

    def __init__(self, url: str, client: httpx.AsyncClient, model: str | None) -> None:
        """model: model to request; None for the first served one, which `check` reads."""
        self.url, self.model = base_address(url), model
        self._client = client

    async def check(self) -> None:
        """Read the served model's name. Raises InputError in one line."""
        served = await first_model(self._client, self.url)
        if self.model is None:
            self.model = served


async def first_model(client: httpx.AsyncClient, url: str) -> str | None:
    """Name of the first model under a base address; None if the server names none.

    Raises InputError in one line if no server answers, or another kind of server does.
    """
    try:
        answer = await client.get(f"{url}/v1/models")
        answer.raise_for_status()
        models = [str(entry["id"]) for entry in answer.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{url} does not answer as OpenAI's API: {said(error)}") from error
    return models[0] if models else None


def base_address(url: str) -> str:
    """The address before `/v1`, whether it was given with it or not."""
    return url.rstrip("/").removesuffix("/v1")


def said(error: Exception) -> str:
    """An error as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
