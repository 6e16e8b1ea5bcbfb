"""What OpenAI-compatible servers say of themselves, for the commands that ask them."""

from __future__ import annotations

import httpx

from specscope.errors import InputError


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
