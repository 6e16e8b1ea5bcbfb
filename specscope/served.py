"""What OpenAI-compatible servers say of themselves, for the commands that ask them."""

from __future__ import annotations

import httpx

from specscope.errors import InputError


def asking(timeout_s: float) -> httpx.AsyncClient:
    """A client for measurements: no limit on requests at once, no proxy, no connection used twice.

    Servers close a connection without a word: idle ones after a few seconds, and llama.cpp at
    times right after an answer. A request that is on its way then is lost.
    timeout_s: without a byte
    """
    return httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=10.0),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,
    )


class Served:
    """An OpenAI-compatible server under one base address."""

    def __init__(self, url: str, client: httpx.AsyncClient, model: str | None) -> None:
        """model: what to ask for; None: the first that it serves, once `check` has asked."""
        self.url, self.model = base_address(url), model
        self._client = client

    async def check(self) -> None:
        """Ask what it serves, and take its model's name. Raises InputError in one line."""
        served = await first_model(self._client, self.url)
        if self.model is None:
            self.model = served


async def first_model(client: httpx.AsyncClient, url: str) -> str | None:
    """Name of the first model under a base address; None where the server names none.

    Raises InputError in one line where nothing answers there, or something else does.
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
