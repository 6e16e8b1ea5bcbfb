"""Writes the references of commands and settings: `make reference`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from specscope.cli import VERBS, build_parser
from specscope_hook.settings import COMMANDS, HOOK, KNOWN, SERVICE, SIDECAR

DOCS = Path(__file__).parents[1]
COMMANDS_HEAD = """# Command reference

`make reference` writes this page from the parsers, and a test compares them.
`specscope VERB --help` says the same. `--json` prints the result for scripts.
[Exit codes](settings.md#exit-codes) mean the same in every command.
"""
SETTINGS_HEAD = """# Settings

`make reference` writes this page from the code, and a test compares them. Every process reads its
settings from the environment. A command refuses a name that begins with `SPECSCOPE_` and is not
listed here, and proposes the nearest one. The hook only warns: a typo must not stop a server.
"""
READERS = {
    HOOK: (
        "In the serving process (the hook)",
        "The hook reads class rules again while the engine runs, and policies arrive through the "
        "sidecar. It\nreads everything else once, at start.",
    ),
    SIDECAR: (
        "In the sidecar",
        "`SPECSCOPE_RINGS` must be set here, unless there are `SPECSCOPE_SOURCES`.",
    ),
    SERVICE: (
        "In the service",
        "Beyond this machine the service refuses to start without tokens, certificate and key.",
    ),
    COMMANDS: ("In the commands", "An option of the command outranks its setting."),
}
LINKS = {
    "SPECSCOPE_CLASSES": "[rules](engines/vllm.md#classes)",
    "SPECSCOPE_SOURCES": "[llama.cpp](engines/llama.cpp.md), "
    "[vLLM](engines/vllm-metrics.md), [Dynamo and SGLang](engines/forward-passes.md)",
    "SPECSCOPE_STORE_SYNC": "[durability](store.md#what-an-acknowledgement-means)",
    "SPECSCOPE_TOKENS": "[security](security.md#tokens-and-tenants)",
    "SPECSCOPE_REQUEST_K": "[vLLM](engines/vllm.md#draft-length-per-request)",
}
SETTINGS_TAIL = """
## Exit codes

| code | name | meaning |
|---|---|---|
| 0 | done | the command did its work, and its answer is settled |
| 1 | failed | one line on standard error names the error |
| 2 | usage | an argument or a setting is invalid |
| 3 | unsettled | the command answered, but nothing is decided yet, or the things compared differ |

`analyze`, `report`, `replay`, `gate recommend` and `gate export` end with 3 if no verdict decides
anything. `gate diff` ends with 3 if the tables differ, `gate watch` while a segment has no answer,
and `lossless` if outputs differ or too few were compared. A report that ends with 3 is written all
the same.
"""


def pages() -> dict[Path, str]:
    """Every page that this makes, by its path."""
    return {
        DOCS / "cli.md": "".join(_commands()),
        DOCS / "settings.md": "".join(_settings()),
    }


def _settings() -> Iterator[str]:
    yield SETTINGS_HEAD
    for reader, (title, remark) in READERS.items():
        yield f"\n## {title}\n\n{remark}\n\n| name | meaning | default |\n|---|---|---|\n"
        for name, setting in KNOWN.items():
            if reader in setting.readers:
                link = f" ({LINKS[name]})" if name in LINKS else ""
                yield f"| `{name}` | {setting.meaning}{link} | {setting.default} |\n"
    yield SETTINGS_TAIL


def _commands() -> Iterator[str]:
    yield COMMANDS_HEAD
    for verb, entry in VERBS.items():
        parser = _children(build_parser(verb))[verb]
        needs = f"It needs the extra `{entry.extra}`." if entry.extra else "It needs no extra."
        yield f"\n## specscope {verb}\n"
        yield from _described(parser, entry.help)
        yield f"\n{needs}\n"
        yield from _table(parser)
        for name, child in _children(parser).items():
            yield f"\n### specscope {verb} {name}\n"
            yield from _described(child, "")
            yield from _table(child)


def _described(parser: argparse.ArgumentParser, otherwise: str) -> Iterator[str]:
    for text in (parser.description or otherwise, parser.epilog):
        if not text:
            continue
        laid_out = parser.formatter_class is argparse.RawDescriptionHelpFormatter and "\n" in text
        yield f"\n```text\n{text.strip()}\n```\n" if laid_out else f"\n{text.strip()}\n"


def _table(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [_row(action) for action in parser._actions if not _hidden(action)]
    if rows:
        yield "\n| argument | meaning | default |\n|---|---|---|\n"
        yield from rows


def _hidden(action: argparse.Action) -> bool:
    return (
        isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        or action.help == argparse.SUPPRESS
    )


def _row(action: argparse.Action) -> str:
    text, default = _help(action), action.default
    named = re.search(r"\s*\(default: ([^)]*)\)", text)
    if named:
        text, default = text.replace(named[0], ""), named[1]
    known = default not in (None, False, [], "", argparse.SUPPRESS)
    cells = (f"`{_name(action)}`", text, str(default) if known else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _name(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    values = value if isinstance(value, tuple) else (value,)
    if action.choices:
        values = ("{" + ",".join(map(str, action.choices)) + "}",)
    if action.nargs == 0:
        values = ()
    words = (action.option_strings[-1:] or []) + list(values)
    return " ".join(words)


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default, "prog": "specscope"}
    return text + ("; required" if action.required and action.option_strings else "")


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Parsers of the words that may follow; empty if there are none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


if __name__ == "__main__":
    for path, page in pages().items():
        path.write_text(page)
        sys.stdout.write(f"{path.name}: {len(page.splitlines())} lines\n")
