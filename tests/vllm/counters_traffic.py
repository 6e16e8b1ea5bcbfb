"""Servers and kinds of traffic for the table of counters, see counters_table."""

from __future__ import annotations

import http.client
import json
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_checks import NGRAM
from vllm_rings import CORES

BUNDLED = Path(__file__).parents[2] / "specscope" / "engine" / "bundled"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
RULES = {
    "default": "unlabelled",
    "rules": [
        {"class": "sql", "request_id": "^sql-"},
        {"class": "chat", "request_id": "^talk-"},
    ],
}
PROMPTS = [
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n",
    "SELECT name, total FROM orders WHERE total > 10;\nSELECT name,",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    '{"name": "a", "value": 1}\n{"name": "b", "value": 2}\n{"name":',
    "one two three four one two three four one two",
    "import os\nimport sys\nimport json\n\nimport os\nimport sys\n",
]


def ask(address: str, name: str, *, chat: bool = False, **body: Any) -> list[str]:
    """Send a request under an id of ours; the texts that came back."""
    route = "chat/completions" if chat else "completions"
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    data = json.dumps({"model": "tiny", "temperature": 0.0, **body}).encode()
    request = urllib.request.Request(f"{address}/v1/{route}", data, headers)
    with urllib.request.urlopen(request, timeout=900) as answer:
        choices = json.load(answer)["choices"]
    return [choice["message"]["content"] if chat else choice["text"] for choice in choices]


def hang_up(address: str, name: str, prompt: str) -> list[str]:
    """Ask for a stream and go away in the middle of it."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=900)
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 300, "stream": True}
    body |= {"ignore_eos": True, "temperature": 0.0}
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    for _ in range(8):
        answer.readline()
    connection.sock.close()
    connection.close()
    return []


def plain(address: str, n: int) -> list[str]:
    return ask(address, f"r-{n}", prompt=prompt(n), max_tokens=24 + n % 4 * 8)


def stopping(address: str, n: int) -> list[str]:
    return ask(address, f"s-{n}", prompt=prompt(n), max_tokens=64, stop=["\n", "the", "e"])


def several(address: str, n: int) -> list[str]:
    more = {"n": 2 + n % 2, "temperature": 0.8, "seed": n}
    return ask(address, f"sql-{n}", prompt=prompt(n), max_tokens=24, **more)


def chatting(address: str, n: int) -> list[str]:
    messages = [{"role": "user", "content": prompt(n)}]
    return ask(address, f"talk-{n}", chat=True, messages=messages, max_tokens=32)


def labelled(address: str, n: int) -> list[str]:
    own = {"vllm_xargs": {"specscope_class": "mail"}}
    kinds: list[tuple[str, dict[str, Any]]] = [(f"sql-{n}", {}), (f"x-{n}", own), (f"y-{n}", {})]
    name, more = kinds[n % 3]
    return ask(address, name, prompt=prompt(n), max_tokens=24, **more)


def aborted(address: str, n: int) -> list[str]:
    return hang_up(address, f"a-{n}", prompt(n)) if n % 2 else plain(address, n)


def prompt(n: int) -> str:
    return f"{PROMPTS[n % len(PROMPTS)]} {n // len(PROMPTS)}"


Send = Callable[[str, int], list[str]]


@dataclass(frozen=True)
class Traffic:
    """A kind of traffic, and whether the front end may throw computed tokens away in it."""

    send: Send
    requests: int = 24
    throws_away: bool = False
    classes: dict[str, int] = field(default_factory=dict)
    """Requests by class that must be recorded."""


PLAIN = {"plain": Traffic(plain)}


@dataclass(frozen=True)
class Server:
    """How a server is started, and what it is sent."""

    speculation: dict[str, Any]
    traffic: dict[str, Traffic]
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


def servers(pair: Path) -> dict[str, Server]:
    """By name. pair: directory of the bundled models as checkpoints."""
    drafted = {
        "method": "draft_model",
        "model": str(pair / "draft"),
        "num_speculative_tokens": 3,
    }
    schedule = {"num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 4, 2], [5, 8, 0]]}
    two = {"VLLM_CPU_OMP_THREADS_BIND": f"{CORES[0]}|{CORES[-1]}"}
    (pair / "chat.jinja").write_text(TEMPLATE)
    (pair / "rules.json").write_text(json.dumps(RULES))
    kinds = {
        "plain": Traffic(plain),
        "aborts": Traffic(aborted, throws_away=True),
        "stop strings": Traffic(stopping, throws_away=True),
        "n > 1": Traffic(several, requests=12, classes={"sql": 30}),
        "chat": Traffic(chatting, classes={"chat": 24}),
        "classes": Traffic(labelled, classes={"sql": 8, "mail": 8, "unlabelled": 8}),
    }
    return {
        "n-gram, k = 4": Server(
            NGRAM,
            kinds,
            ("--chat-template", str(pair / "chat.jinja")),
            {"SPECSCOPE_CLASSES": str(pair / "rules.json")},
        ),
        "draft model, k = 3": Server(drafted, PLAIN),
        "draft model, batch-size schedule": Server(drafted | schedule, PLAIN),
        "n-gram, two data-parallel ranks": Server(NGRAM, PLAIN, ("--data-parallel-size", "2"), two),
        "n-gram, two tensor-parallel ranks": Server(
            NGRAM, PLAIN, ("--tensor-parallel-size", "2"), two
        ),
        "n-gram, hook off": Server(NGRAM, PLAIN, (), {"SPECSCOPE_RINGS": "off"}),
    }


def checkpoints(directory: Path) -> None:
    """Write the bundled pair as checkpoints that vLLM loads."""
    for name in ("target", "draft"):
        place = directory / name
        place.mkdir()
        shutil.copy(BUNDLED / f"{name}.safetensors", place / "model.safetensors")
        shutil.copy(BUNDLED / f"{name}.json", place / "config.json")
        shutil.copy(BUNDLED / "tokenizer.json", place)
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
        (place / "tokenizer_config.json").write_text(json.dumps(names))
