"""Command lines and settings that a log begins with: whether speculation is configured.

A server with a configured drafter is no target-only run, even if the drafter never proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specscope.readers.logs.lines import plain
from specscope.readers.records import Origin, Record
from specscope.readers.tables.command_lines import commanded
from specscope.readers.tables.names import k_of

_SERVER = re.compile(
    r"\b(?:llama-(?:server|cli|bench)|vllm serve|api_server|sglang\.launch_server|sglang "
    r"serve|mlx_lm[.\w]*"
    r"|trtllm-serve|rapid-mlx serve|server_args=ServerArgs|non-default "
    r"args|speculative_config=None)"
)
_LOADED = re.compile(
    r"adding speculative implementation|loading draft model|speculative_algorithm='?(?!None|null)\w"
    r"|speculative decoding (?:is )?enabled|SpeculativeConfig\(|'speculative_config': \{"
)
_METHOD = re.compile(
    r"--spec(?:ulative)?[-_](?:type|algorithm)[= ]['\"]?([\w-]+)|method['\"]?[=:] ?['\"](\w+)"
    r"|speculative implementation '([\w-]+)'|speculative_algorithm='?(\w+)"
)


class Commands:
    """One `Origin` for each line that starts a server or loads a drafter."""

    name = "command"
    gates = (
        b"llama-server", b"llama-cli", b"vllm serve", b"api_server", b"launch_server",
        b"server_args=",
        b"non-default args", b"speculative", b"loading draft model", b"serve ",
    )  # fmt: skip
    marks = gates

    def __init__(self, input: str) -> None:
        self._input = input

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        text = plain(line[:8192])
        server = _SERVER.search(text)
        loaded = _LOADED.search(text)
        if not server and not loaded:
            return ()
        stated = commanded(text)
        speculates = bool(loaded) or bool(stated)
        if (
            stated is False
            or "speculative_config=None" in text
            or "speculative_algorithm=None" in text
        ):
            speculates = bool(loaded) and stated is not False
        method = _METHOD.search(text)
        name = next((group for group in method.groups() if group), None) if method else None
        return (Origin("unknown", None, name, k_of(text) if speculates else None, speculates),)

    def finish(self) -> Iterable[Record]:
        """Return no further records."""
        return ()
