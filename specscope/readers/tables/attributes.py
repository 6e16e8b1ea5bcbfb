"""Find engine, precision, machine, load and model size in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ATTRIBUTES = {
    "engine": re.compile(
        r"\b(?:vllm|sglang|ik_?llama(?:\.cpp)?|llama[. ]?cpp|tensorrt[- ]?llm|trt[- "
        r"]?llm|omlx|mlx(?:-v?lm)?"
        r"|exllama(?:v\d)?|tabby(?:api)?|tgi|lmdeploy|transformers|ollama|lm "
        r"?studio|ktransformers|basert"
        r"|mlc(?:-llm)?|xllm|atom|deepspeed|nim|dynamo)\b"
    ),
    "precision": re.compile(
        r"(?<![a-z0-9])(?:bf16|fp?16|fp?32|fp8|fp4|nvfp4|mxfp\d|int[48]|w\d{1,2}a\d{1,2}|i?q\d(?:_[a-z0-9]+)*"
        r"|oq\d\w?|awq|gptq|exl\d|\d{1,2}[- ]?bits?)(?![a-z0-9])"
    ),
    "hardware": re.compile(
        r"(?<![a-z0-9])(?:a10g?|a30|a40|a100|a800|a6000|h20|h100|h200|h800|b100|b200|b300|l4|l20|l40s?|t4"
        r"|v100|p100|gb\d{2,3}|gh200|rtx|[2345]0[5-9]0(?: ?ti)?|mi\d{3}x?|m[1-5](?: "
        r"(?:max|ultra|pro))?"
        r"|tpu|dgx|spark|strix|xeon|epyc|910b|gaudi\d?)(?![a-z0-9])"
    ),
    "load": re.compile(
        r"\b(?:tp|ep|bs|batch(?: size)?|conc(?:urrency)?|ctx|context|isl|osl)\s?[=:]?\s?\d+k?\b"
        r"|\b\d+k?\s?(?:ctx|context|users|streams|clients|concurrent|gpus?)\b"
    ),
    "size": re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,2})?)b(?![a-z0-9])"),
}


DRAFTERS_NAME = re.compile(r"\bdraft(?:er)?(?: model)?\W+\S+", re.IGNORECASE)
"""A drafter's own size says nothing of the model that it drafts for."""


_SERIES = {"rtx", "dgx", "spark", "strix", "xeon", "epyc"}
"""Series of machines, whose models follow."""


def unlike(ours: str, theirs: str) -> list[str]:
    """The differences between two names: `engine`, `precision`, `hardware`, model `size`."""
    return [kind for kind, a, b in _attributes(ours, theirs) if a and b and not a & b]


def one_sided(ours: str, theirs: str) -> list[str]:
    """Attributes that only one of two names gives."""
    return [
        kind for kind, a, b in _attributes(ours, theirs) if bool(a) != bool(b) and kind != "size"
    ]


def several(text: str) -> list[str]:
    """Attributes with two values in a text: engines, precisions or machines."""
    return [
        kind for kind, own, _ in _attributes(text, "") if len(own - _SERIES) > 1 and kind != "size"
    ]


def _attributes(ours: str, theirs: str) -> Iterator[tuple[str, set[str], set[str]]]:
    for kind, pattern in _ATTRIBUTES.items():
        if kind == "size":  # the last of them
            ours, theirs = (DRAFTERS_NAME.sub(" ", text) for text in (ours, theirs))
        a, b = (
            set(pattern.findall(text.lower().replace("_", " " if kind != "precision" else "_")))
            for text in (ours, theirs)
        )
        if kind == "load":  # of which they give different values
            shared = set(map(_dimension, a - b)) & set(map(_dimension, b - a))
            a, b = ({one for one in own if _dimension(one) in shared} for own in (a - b, b - a))
        if kind == "size":
            a, b = ({max(found, key=float)} if found else set() for found in (a, b))
        yield kind, a, b


def _dimension(load: str) -> str:
    """`bs` of `bs=8`; `batch size` is another word for it."""
    word = re.sub(r"[\W\d]|(?<=\d)k\b", "", load)
    return {"batch": "bs", "batchsize": "bs", "context": "ctx", "concurrency": "conc",
            "concurrent": "conc", "gpus": "gpu"}.get(word, word)  # fmt: skip
