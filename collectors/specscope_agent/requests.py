"""Request rows: a complete one at admission and another at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specscope_agent import arrays
from specscope_agent.arrays import Names, finite, known, looked_up
from specscope_agent.rounds import block_columns

_MILLISECONDS = ("queue_ms", "prefill_ms", "ttft_ms", "decode_ms", "e2e_ms")
_NOT_KNOWN = np.iinfo(np.uint32).max


def request_columns(seq: NDArray[np.uint64], values: NDArray[Any], names: Names) -> dict[str, Any]:
    """Columns of `request` without its source, from record numbers and ring values."""
    runs = values["ended_at"] == 0
    return {
        "request": values["request"],
        "seq": seq,
        "class": looked_up(names.classes, values["class_"]),
        "session": known(values["session"], values["session"] == 0),
        "admitted_at": arrays.instants(values["admitted_at"]),
        "ended_at": arrays.instants(values["ended_at"], runs),
        **block_columns(values, names),
        "last_pair": known(values["last_pair"], values["last_pair"] == 0),
        "prompt_tokens": values["prompt_tokens"],
        **{
            name: known(values[name], values[name] == _NOT_KNOWN)
            for name in ("cached_tokens", "requested_output")
        },
        **{name: known(values[name], runs) for name in ("output_tokens", "preemptions")},
        "digest": known(values["digest"], values["digest"] == 0),
        **{name: values[name] for name in ("temperature", "top_p")},
        "content": known(values["content"], values["content"] == 0),
        "guided": values["guided"] != 0,
        "adapter": looked_up(names.adapters, values["adapter"]),
        **{name: finite(values[name]) for name in _MILLISECONDS},
        "reason": looked_up(arrays.ENDS, values["reason"]),
    }
