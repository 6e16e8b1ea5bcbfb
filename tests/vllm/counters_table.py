"""Our counters against vLLM's own, over kinds of traffic.

    counters_table.py run PYTHON_OF_VLLM RESULTS.json [SERVER...]
    counters_table.py render RESULTS.json PAGE.md

`run` starts each server in turn, sends it each kind of traffic, and adds to RESULTS what its
/metrics page counted and what the rings hold; a server that is there already is skipped. It takes
about two minutes a server. `render` writes a page of the documentation. Both exit with 1 if a
count that must be equal is not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from counters_traffic import Server, checkpoints, plain, servers
from vllm_server import counters, server

from specscope_hook.layout import NAME_CLASS, Cursor
from specscope_hook.payload import decode
from specscope_hook.reader import RingReader
from specscope_hook.ring_records import RingRound

CLIENTS = 6
SPECULATION = "vllm:spec_decode_num_"

# --- what both sides counted -----------------------------------------------------------------

LOOSE = ("request-rounds", "tokens", "requests")
COUNTS = ("drafts", "proposed", "accepted", "by position", "request-rounds", "tokens", "requests")
Counts = dict[str, Any]


def theirs(address: str, k_max: int) -> Counts:
    """What the /metrics page has counted so far."""
    page = counters(address)

    def count(name: str) -> int:
        return int(sum(value for (each, _), value in page.items() if each == name))

    position = f"{SPECULATION}accepted_tokens_per_pos_total"
    return {
        "drafts": count(f"{SPECULATION}drafts_total"),
        "proposed": count(f"{SPECULATION}draft_tokens_total"),
        "accepted": count(f"{SPECULATION}accepted_tokens_total"),
        "by position": [int(page.get((position, str(n)), 0)) for n in range(k_max)],
        "request-rounds": count("vllm:inter_token_latency_seconds_count"),
        "tokens": count("vllm:generation_tokens_total"),
        "requests": count("vllm:request_success_total"),
    }


def ours(rings: Path, k_max: int) -> tuple[Counts, dict[str, int]]:
    """What the rings hold so far, and ended requests by class."""
    counts: Counts = {**dict.fromkeys(COUNTS, 0), "by position": [0] * k_max}
    classes: dict[str, int] = {}
    for path in rings.glob("*.ring"):
        reader = RingReader.open(path)
        records, _, gaps = reader.pull(Cursor(), 1 << 40)
        assert gaps == []
        assert reader.fault_text == "", reader.fault_text
        names = reader.names(NAME_CLASS)
        for record in map(decode, records):
            if isinstance(record, RingRound):
                _add(counts, record)
            elif record.ended_at:
                counts["requests"] += 1
                counts["tokens"] += record.output_tokens
                name = names[record.class_]
                classes[name] = classes.get(name, 0) + 1
        reader.close()
    return counts, classes


def _add(counts: Counts, round_: RingRound) -> None:
    counts["request-rounds"] += len(round_.k)
    counts["drafts"] += sum(k > 0 for k in round_.k)
    counts["proposed"] += sum(round_.k)
    counts["accepted"] += sum(round_.accepted)
    for position in range(len(counts["by position"])):
        counts["by position"][position] += sum(a > position for a in round_.accepted)


def settled(address: str, k_max: int) -> Counts:
    """The page once nothing runs any more and it has stood still for two seconds."""
    last: Counts = {}
    while True:
        page = counters(address)
        busy = sum(v for (n, _), v in page.items() if n.startswith("vllm:num_requests_"))
        counts = theirs(address, k_max)
        if counts == last and not busy:
            return counts
        last = counts
        time.sleep(2)


def less(after: Counts, before: Counts) -> Counts:
    """What came between two readings."""
    return {
        name: [a - b for a, b in zip(value, before[name], strict=True)]
        if isinstance(value, list)
        else value - before[name]
        for name, value in after.items()
    }


def measure(python: str, pair: Path, chosen: Server, log: Path) -> Iterator[dict[str, Any]]:
    """Start a server, and yield a result for each kind of traffic."""
    k_max = chosen.speculation["num_speculative_tokens"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, ExitStack() as stack:
        rings = Path(directory)
        address = stack.enter_context(
            server(
                python,
                pair / "target",
                chosen.speculation,
                rings,
                log,
                settings=chosen.settings,
                arguments=("--dtype", "float32", *chosen.arguments),
            )
        )
        clients = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        for kind, traffic in chosen.traffic.items():
            before, (held, labelled_before) = theirs(address, k_max), ours(rings, k_max)
            sending = [
                clients.submit(traffic.send, address, number) for number in range(traffic.requests)
            ]
            texts = [each.result() for each in sending]
            page = settled(address, k_max)
            recorded, labelled_now = ours(rings, k_max)
            yield {
                "traffic": kind,
                "throws_away": traffic.throws_away,
                "sent": traffic.requests,
                "theirs": less(page, before),
                "ours": less(recorded, held) if any(rings.glob("*.ring")) else None,
                "classes": {
                    name: count - labelled_before.get(name, 0)
                    for name, count in labelled_now.items()
                    if count > labelled_before.get(name, 0)
                },
                "wanted_classes": traffic.classes,
                "texts": texts if traffic.send is plain else None,
            }


# --- the page ----------------------------------------------------------------------------------


def faults(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Counts that must be equal and are not, in words."""
    found = []
    texts = [row["texts"] for rows in results.values() for row in rows if row["texts"]]
    if any(each != texts[0] for each in texts):
        found.append("outputs at temperature 0 differ between servers")
    for name, rows in results.items():
        for row in rows:
            for count in COUNTS if row["ours"] else ():
                ours_, theirs_ = row["ours"][count], row["theirs"][count]
                loose = row["throws_away"] and count in LOOSE and ours_ > theirs_
                if ours_ != theirs_ and not loose:
                    found.append(f"{name}, {row['traffic']}: {count} differ")
            if row["ours"] and row["throws_away"] and row["ours"]["requests"] != row["sent"]:
                found.append(f"{name}, {row['traffic']}: {row['sent']} requests were sent")
            if row["wanted_classes"] and row["classes"] != row["wanted_classes"]:
                found.append(f"{name}, {row['traffic']}: classes {row['classes']}")
    return found


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """The page of the documentation."""
    lines = [
        "# vLLM's counters and ours",
        "",
        "`make vllm-counters` starts real vLLM servers (0.32.0, CPU build, the bundled models),",
        "sends them the traffic below, and compares the hook's records with the `/metrics` page.",
        "A single number is the same on both sides. If two stand in a cell, the first is ours.",
        "",
        "If a client gives up a request, or a stop string ends it, the front end throws away",
        "tokens that the engine has computed, and it does not count a request that was given up as",
        "a success. The hook records all that the engine computed, so the two sides differ there.",
        "",
        "| server | traffic | " + " | ".join(COUNTS) + " |",
        "|---|---|" + "---|" * len(COUNTS),
    ]
    for name, rows in results.items():
        for row in rows:
            if row["ours"]:
                cells = (_cell(row["ours"][count], row["theirs"][count]) for count in COUNTS)
                lines.append(f"| {name} | {row['traffic']} | " + " | ".join(cells) + " |")
    texts = {name: row["texts"] for name, rows in results.items() for row in rows if row["texts"]}
    equal = len({json.dumps(each) for each in texts.values()}) == 1
    count = len(next(iter(texts.values())))
    lines += [
        "",
        f"Outputs of the {count} plain requests at temperature 0 are "
        f"{'the same' if equal else 'NOT the same'} on {len(texts)} servers.",
        "One of these runs without the hook.",
        "",
        "Requests by class: "
        + "; ".join(
            f"{row['traffic']}: " + ", ".join(f"{c} {n}" for c, n in sorted(row["classes"].items()))
            for rows in results.values()
            for row in rows
            if row["wanted_classes"]
        )
        + ".",
        "",
    ]
    return "\n".join(lines)


def _cell(ours: Any, theirs: Any) -> str:
    def shown(value: Any) -> str:
        return "/".join(map(str, value)) if isinstance(value, list) else str(value)

    return shown(ours) if ours == theirs else f"{shown(ours)}, {shown(theirs)}"


def main() -> int:
    """Run or render."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("python")
    run.add_argument("results", type=Path)
    run.add_argument("servers", nargs="*")
    render = commands.add_parser("render")
    render.add_argument("results", type=Path)
    render.add_argument("page", type=Path)
    arguments = parser.parse_args()
    path: Path = arguments.results
    results = json.loads(path.read_text()) if path.exists() else {}
    if arguments.command == "render":
        arguments.page.write_text(page(results))
    else:
        with tempfile.TemporaryDirectory() as directory:
            pair = Path(directory)
            checkpoints(pair)
            for name, chosen in servers(pair).items():
                if name in results or (arguments.servers and name not in arguments.servers):
                    continue
                rows = list(measure(arguments.python, pair, chosen, pair / "log"))
                results[name] = rows
                path.write_text(json.dumps(results))
                said = ", ".join(faults({name: rows})) or "equal"
                sys.stdout.write(f"{name}: {said}\n")
                sys.stdout.flush()
    for line in faults(results):
        sys.stderr.write(f"{line}\n")
    return 1 if faults(results) else 0


if __name__ == "__main__":
    sys.exit(main())
