"""Traffic for an OpenAI-compatible server: requests arrive at random, whoever still waits.

    python3 docs/examples/traffic.py http://127.0.0.1:8000 --class json --rate 4 --seconds 300

Needs the standard library only. The prompts are those that come with the bundled models.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

PROMPTS = Path(__file__).parents[2] / "specscope/engine/bundled/prompts.jsonl"
CLASS_HEADER = "x-specscope-class"
STARTS_WITHIN_S = 60.0
ANSWERS_WITHIN_S = 60.0


def main() -> int:
    """Send requests until the time is over. Exit code 1 if none was answered."""
    parser = argparse.ArgumentParser(description="Sends completion requests at random times.")
    parser.add_argument("url", help="base address of the server, such as http://127.0.0.1:8000")
    parser.add_argument("--class", dest="labels", action="append", help="class (default: all four)")
    parser.add_argument("--rate", type=float, default=4.0, help="per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)s)")
    args = parser.parse_args()
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    known = {prompt["label"] for prompt in prompts}
    if unknown := set(args.labels or ()) - known:
        parser.error(f"no prompts of class {min(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [one for one in prompts if not args.labels or one["label"] in args.labels]
    _wait_for(args.url)
    answers: list[str] = []
    failures: Counter[str] = Counter()
    requests = []
    until = time.monotonic() + args.seconds
    draws = random.Random(1)
    while time.monotonic() < until:
        prompt = draws.choice(chosen)
        request = threading.Thread(
            target=complete,
            args=(args.url, prompt["label"], prompt["text"], answers, failures),
            daemon=True,
        )
        request.start()
        requests.append(request)
        time.sleep(draws.expovariate(args.rate))
    for request in requests:
        request.join()
    failed = "".join(f"; {count} failed: {why}" for why, count in failures.most_common())
    sys.stdout.write(f"{len(answers)} of {len(requests)} requests answered{failed}\n")
    return 0 if answers else 1


def complete(url: str, label: str, text: str, answers: list[str], failures: Counter[str]) -> None:
    """Send one request and append its text to `answers`, or count why there is none.

    The first failure of a kind is printed at once.
    """
    body = json.dumps({"prompt": text[:160], "max_tokens": 48}).encode()
    headers = {"Content-Type": "application/json", CLASS_HEADER: label}
    request = urllib.request.Request(f"{url}/v1/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
            answers.append(json.load(answer)["choices"][0]["text"])
    except OSError as error:
        why = "timed out: lower --rate" if isinstance(error, TimeoutError) else str(error)
        failures[why] += 1
        if failures[why] == 1:
            sys.stderr.write(f"{url}: {why}\n")


def _wait_for(url: str) -> None:
    """Wait until the server answers, at most STARTS_WITHIN_S. Requests after that fail by name."""
    patience = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < patience:
        try:
            urllib.request.urlopen(f"{url}/v1/models", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
