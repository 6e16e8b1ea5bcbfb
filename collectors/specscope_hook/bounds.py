"""Check a policy's values against bounds; errors name the value.

The service checks a policy before it stores it, the sidecar before it keeps it, and the hook before
it applies it. All three use these functions, so no number in a policy can stop them.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from specscope_hook.errors import PolicyError

LONGEST_DRAFT = 255
MOST_TOKENS = 1 << 31
_SHOWN = 40


def parsed(text: str) -> Any:
    """Parse a policy's JSON. Raises PolicyError; NaN and Infinity are invalid."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise PolicyError("not a policy: it is nested too deeply") from error
    except ValueError as error:
        raise PolicyError(f"not a policy: {_short(error)}") from error


def whole(value: Any, name: str, most: int, least: int = 0) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f"{name} is {_short(value)}, not a whole number")
    if not least <= value <= most:
        raise PolicyError(f"{name} is {_short(value)}, not within {least} and {most}")
    return value


def number(value: Any, name: str, most: float, least: float = 0.0) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PolicyError(f"{name} is {_short(value)}, not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise PolicyError(f"{name} is {value}, not a finite number")
    if not least <= value <= most:
        raise PolicyError(f"{name} is {_short(value)}, not within {least:g} and {most:g}")
    return float(value)


def draft_length(value: Any, name: str) -> int:
    """Tokens of a draft."""
    return whole(value, name, LONGEST_DRAFT)


def flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name} is {_short(value)}, neither true nor false")
    return value


def text(value: Any, name: str, most: int) -> str:
    """Text of limited length."""
    if not isinstance(value, str):
        raise PolicyError(f"{name} is {_short(value)}, not text")
    if len(value) > most:
        raise PolicyError(f"{name} has {len(value)} characters; at most {most}")
    return value


def listed(value: Any, name: str, most: int) -> list[Any]:
    """A list of limited length."""
    if not isinstance(value, list):
        raise PolicyError(f"{name} is {_short(value)}, not a list")
    if len(value) > most:
        raise PolicyError(f"{name} has {len(value)} entries; at most {most}")
    return value


def mapping(value: Any, name: str) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise PolicyError(f"{name} is {_short(value)}, not an object")
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _short(value: Any) -> str:
    """A value, shortened for a message; huge numbers are not converted to digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'}"
    shown = str(value)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
