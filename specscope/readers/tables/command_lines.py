"""Command lines that start an engine: do they switch speculation on, and what else do they set?"""

from __future__ import annotations

import re

_COMMAND = re.compile(
    r"--spec[-_]|--speculative|--draft[-_]?\w*|--model[-_]draft|--num[-_]speculative|--mtp\b|\s-md\s|-hfd\b"
    r"|num_speculative_tokens|speculative_config=Spec"
)
_PROGRAM = re.compile(
    r"(?:[A-Z_0-9]+=\S+ )*(?:\S*python3? (?:-m )?(?:sglang|vllm|mlx_lm)\S*|\S*vllm "
    r"serve|\S*llama-\w+"
    r"|sglang serve|trtllm-serve|mlx_lm\S*|\S*/speculative)\b"
)
_OPTIONS = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)(?:[= ](?!-)('[^']*'|\"[^\"]*\"|\S+))?")
_SERVED = re.compile(r"\bserve\s+([^\s-]\S*)")
MODEL = {"-m", "--model", "--model-path", "-hf", "--hf-repo", "-hfr", "model"}
"""Options that another model stands behind."""

_OF_SPECULATION = re.compile(
    r"spec|draft|mtp|lookup|lookahead|eagle|ngram|^-(?:md|hfd|hfrd|ngld|devd|cd|td|tbd|ctkd|ctvd|otd)$"
    r"|^--(?:port|host|alias|log\w*|verbose|api-key)$|^-v$"
)
"""Options of speculation, and those that change no speed."""

_COMMAND_OFF = re.compile(
    r"--spec(?:ulative)?[-_](?:type|algorithm|config)[= ]['\"]?(?:none|off|null)\b"
    r"|(?:n-max|draft-max|num[-_]speculative[-_]tokens)['\"]?[=: ]+0\b|speculative_config=None",
    re.IGNORECASE,
)


def is_command(text: str) -> bool:
    """Whether a text starts an engine."""
    return bool(_PROGRAM.match(text.strip(" $#`")))


def is_plain_command(text: str) -> bool:
    """Whether a text starts an engine without an option or a file that may switch speculation
    on."""
    return is_command(text) and commanded(text) is None and not re.search(r"ya?ml|config|\$", text)


def options_apart(ours: str, theirs: str) -> list[str]:
    """The options that two commands set differently, without those of speculation."""
    a, b = (
        {match.group(1): match.group(2) or "" for match in _OPTIONS.finditer(text)}
        for text in (ours, theirs)
    )
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    models = {match.group(1) for text in (ours, theirs) if (match := _SERVED.search(text))}
    names += ["model"] if len(models) > 1 else []
    return [name for name in names if not _OF_SPECULATION.search(name)]


def commanded(text: str) -> bool | None:
    """Whether a command line or an engine's printed settings switch speculation on; None for
    none."""
    if _COMMAND_OFF.search(text):
        return False
    return True if _COMMAND.search(text) else None
