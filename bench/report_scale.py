"""`report` and `gate recommend` over the rollups of 1 000 replicas and a week.

Budget: each under 15 s of processor time and 1 GB, the embedded engine in the same process
included. A store is filled by SQL with what a week of such a fleet rolls up to: every replica keeps
2 % of its pairs for comparison (k0 and k4, blocks of 120 s, four classes in each), and every minute
has its rows of `minute` and `minute_time` (`--minutes 0` leaves those out, which neither command
reads). Then each command runs as a process of its own; printed are its time and the most memory
that it held.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from specscope.policy.row import policy_row
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.tables import RECORDS
from specscope_hook.columns import columns, stored_name

DAYS, BLOCK_S, SHARE = 7, 120, 0.02
CLASSES = ("chat", "code", "sql", "summary")
BUDGET_S, BUDGET_BYTES = 15.0, 1e9  # of processor time, which other programs do not stretch

# By class (1..4): what k4 yields a round. By arm: what a round costs. [tokens], [us]
YIELD = "[2.1, 2.9, 3.4, 1.5][class_no]"
GAPS, TPOTS = 40, 60  # bins that a block's histograms fill


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--share", type=float, default=SHARE, help="of pairs that are experimental")
    parser.add_argument("--minutes", type=int, default=DAYS * 1440, help="of minute rows a replica")
    parser.add_argument("--store", type=Path, help="folder to keep the store in, or to reuse")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.store or Path(folder) / "store"
        dsn = f"chdb://{path.resolve()}"
        said: dict[str, Any] = {}
        if not path.exists():
            began = time.perf_counter()
            with Store.open(dsn) as store:
                fill(store, args.replicas, args.share, args.minutes)
            said["filled_s"] = round(time.perf_counter() - began, 1)
        with Store.open(dsn) as store:
            migrate(store)  # one that is reused may be of an older version
            said["rows"] = {
                table: store.rows(f"SELECT count() AS n FROM {table}")[0]["n"]
                for table in (
                    "boot",
                    "block_time",
                    "block_part",
                    "block_class",
                    "minute",
                    "minute_time",
                )
            }
        said["disk_gb"] = round(
            sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 1e9, 2
        )
        said["report"] = run("report", "--store", dsn, "--out", str(Path(folder) / "report"))
        said["gate recommend"] = run("gate", "recommend", "--store", dsn, "--json")
        said["budget"] = {"s": BUDGET_S, "gb": BUDGET_BYTES / 1e9}
    print(json.dumps(said, indent=1))


def run(*words: str) -> dict[str, Any]:
    """Time and most memory of one command, and whether both are within the budget."""
    command = [sys.executable, "-c", MEASURED, *words]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 3):  # 3: answered, but undecided
        raise SystemExit(done.stderr[-2000:])
    busy, most_kb = done.stderr.rsplit(" used=", 1)[1].split()
    most = int(most_kb) * 1024
    return {
        "s": round(seconds, 1),
        "cpu_s": round(float(busy), 1),
        "gb": round(most / 1e9, 3),
        "within": float(busy) < BUDGET_S and most < BUDGET_BYTES,
        "says": done.stdout.strip().splitlines()[0][:100],
    }


# The command itself, and the peak of its own process: ru_maxrss would be this one's where more.
MEASURED = """
import re, resource, sys
from specscope.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
peak_kb = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
sys.stderr.write(f" used={used.ru_utime + used.ru_stime} {peak_kb}")
sys.exit(code)
"""


def fill(store: Store, replicas: int, share: float, minutes: int) -> None:
    """A week of rollups of so many replicas."""
    migrate(store)
    now = time.time_ns()
    first = (now // 10**9 // (2 * BLOCK_S) - DAYS * 86_400 // (2 * BLOCK_S)) + 1
    pairs = int(DAYS * 86_400 // (2 * BLOCK_S) * share)
    body = {
        "policy": 1, "kind": "blocks", "seed": 1, "arms": [{"name": "k0"}, {"name": "k4"}],
        "block_ms": 1000 * BLOCK_S, "burn_in_ms": 250 * BLOCK_S, "first_pair": first,
        "share": share, "table": [], "default_k": 4,
    }  # fmt: skip
    store.insert("policy", policy_row(body, "bench", now - DAYS * 86_400 * 10**9))
    put(store, "boot", BOOT, f"numbers({replicas})", started=now - DAYS * 86_400 * 10**9)
    step = max(1, int(1 / share))
    blocks = f"""(SELECT *, exp(cityHash64(pair, r) % 400 / 1000 - 0.2) AS slow,
            exp(cityHash64(number) % 100 / 1000 - 0.05) AS own,
            if(k = 0, 4000, 1400) AS block_rounds, if(k = 0, 20000.0, 34000.0) AS round_us
        FROM (SELECT number, intDiv(number, {2 * pairs}) AS r,
            {first} + {step} * intDiv(number % {2 * pairs}, 2) + r % {step} AS pair,
            4 * (number % 2) AS k
        FROM numbers({2 * pairs * replicas})))"""
    put(store, "block_time", BLOCK_TIME, blocks)
    kinds = f"""(SELECT *, kind % 4 + 1 AS class_no, intDiv(kind, 4) AS c
        FROM {blocks} ARRAY JOIN range(8) AS kind)"""
    put(store, "block_part", BLOCK_PART, kinds)
    put(store, "block_class", BLOCK_CLASS, f"{kinds} WHERE c = 0")
    day = DAYS * 1440
    begin = now // 60_000_000_000 - day
    for start in range(0, minutes, 1440):
        some = min(1440, minutes - start)
        rows = f"""(SELECT intDiv(number, {some}) % {replicas} AS r,
            {begin + start} + number % {some} AS at, if(number % 50 = 0, 0, 4) AS k,
            intDiv(number, {some * replicas}) + 1 AS class_no
            FROM numbers({{count}}))"""
        put(store, "minute", MINUTE, rows.replace("{count}", str(4 * some * replicas)))
        put(store, "minute_time", MINUTE_TIME, rows.replace("{count}", str(some * replicas)))


def put(store: Store, table: str, values: dict[str, str], source: str, started: int = 0) -> None:
    """Rows of a table by expressions over a source; a column without one has its default."""
    known = {name: sql for name, sql in values.items() if name in _names(table)}
    chosen = ", ".join(f"{sql} AS v_{name}" for name, sql in known.items())
    names = ", ".join(f"`{name}`" for name in known)
    store.command(
        f"INSERT INTO {table} ({names}) SELECT {chosen} FROM {source}".replace(
            "{started}", str(started)
        )
    )


def _names(table: str) -> set[str]:
    return {stored_name(column.name) for column in columns(RECORDS[table])}


def _time(ns: str) -> str:
    return f"fromUnixTimestamp64Nano(toInt64({ns}), 'UTC')"


VERSION = "toUInt64(toUnixTimestamp64Nano(now64(9)))"
REPLICA = {"replica": "concat('replica-', toString(r))", "boot": "concat('boot-', toString(r))"}
BLOCK = {
    **REPLICA, "epoch": "'e1'", "policy": "1", "pair": "pair", "arm": "concat('k', toString(k))",
    "version": VERSION,
}  # fmt: skip
BOOT = {
    "replica": "concat('replica-', toString(number))", "boot": "concat('boot-', toString(number))",
    "started_at": _time("{started}"), "host": "concat('node-', toString(number % 128))",
    "engine": "'vllm'", "engine_version": "'0.32.0'", "hook_version": "'0.1.0'", "epoch": "'e1'",
    "target": "'llama-8b'", "draft": "'llama-1b'", "method": "'draft_model'", "k_max": "4",
    "role": "'both'", "gpu_type": "'H100'", "parameters": "8030000000",
    "active_parameters": "8030000000", "bytes_per_weight": "2", "kv_bytes_per_token": "131072",
    "layers": "32", "draft_parameters": "1230000000", "draft_bytes_per_weight": "2",
}  # fmt: skip
WALL = "block_rounds * round_us * slow * own"
BATCH = "32"
TOKENS = "toUInt64(if(k = 0, 1, 2.475) * block_rounds * 32)"
_BEGIN = f"pair * {2 * BLOCK_S} + if(k = 0, 0, {BLOCK_S})"
BLOCK_TIME = {
    **BLOCK, "requests": "400 + number % 41", "rounds": "block_rounds",
    "request_rounds": f"block_rounds * {BATCH}", "classes": f"{list(CLASSES)}", "k": "k",
    "wall_us": WALL, "draft_us": f"if(k = 0, 0, 0.3) * {WALL}", "verify_us": f"0.6 * {WALL}",
    "sample_us": f"0.03 * {WALL}", "idle_us": f"0.05 * {WALL}", "catchup_us": "0.",
    "prefill_us": f"0.02 * {WALL}", "n_q": f"block_rounds * {BATCH} * (k + 1)",
    "n_kv": f"block_rounds * {BATCH} * 900", "proposed": f"block_rounds * {BATCH} * k",
    "accepted": f"{TOKENS} - block_rounds * {BATCH}", "emitted": TOKENS, "prefill_tokens": "120000",
    "first_at": _time(f"({_BEGIN} + {BLOCK_S // 4}) * 1000000000"),
    "last_at": _time(f"({_BEGIN} + {BLOCK_S}) * 1000000000 - 20000000"),
    "gap_bins": f"arrayMap(i -> toInt16(140 + i), range({GAPS}))",
    "gap_counts": f"arrayMap(i -> toUInt64(intDiv(block_rounds * {BATCH}, {GAPS})), range({GAPS}))",
    "tpot_bins": f"arrayMap(i -> toInt16(if(k = 0, 150, 132) + i), range({TPOTS}))",
    "tpot_counts": f"arrayMap(i -> toUInt64(6 + cityHash64(number, i) % 3), range({TPOTS}))",
}  # fmt: skip
PART_ROUNDS = f"toUInt64(block_rounds * {BATCH} / 8)"
BLOCK_PART = {
    **BLOCK, "class": f"{list(CLASSES)}[class_no]", "context_bucket": "['0-1k', '1-4k'][c + 1]",
    "output_bucket": "'65-256'", "k": "k", "request_rounds": PART_ROUNDS,
    "proposed": f"{PART_ROUNDS} * k",
    "accepted": f"toUInt64({PART_ROUNDS} * if(k = 0, 0, {YIELD} - 1))",
    "emitted": f"toUInt64({PART_ROUNDS} * if(k = 0, 1, {YIELD}))",
    "tested": f"arrayMap(i -> toUInt64({PART_ROUNDS} * pow(0.7, i)), range(k))",
    "kept": f"arrayMap(i -> toUInt64({PART_ROUNDS} * pow(0.7, i + 1)), range(k))",
    "requests": "50",
}  # fmt: skip
BLOCK_CLASS = {
    **BLOCK, "class": f"{list(CLASSES)}[class_no]", "requests": "100",
    "tpot_bins": BLOCK_TIME["tpot_bins"],
    "tpot_counts": f"arrayMap(i -> toUInt64(1 + cityHash64(number, i) % 3), range({TPOTS}))",
}  # fmt: skip
MINUTE = {
    **REPLICA, "minute": _time("at * 60000000000"), "class": f"{list(CLASSES)}[class_no]", "k": "k",
    "request_rounds": "14000", "proposed": "14000 * k", "accepted": "14000 * k / 2",
    "emitted": f"toUInt64(14000 * if(k = 0, 1, {YIELD}))",
    "accepted_length": "arrayMap(i -> toUInt64(2800), range(k + 1))",
    "tested": "arrayMap(i -> toUInt64(14000 * pow(0.7, i)), range(k))",
    "kept": "arrayMap(i -> toUInt64(14000 * pow(0.7, i + 1)), range(k))",
    "context": "12600000", "version": VERSION,
}  # fmt: skip
MINUTE_TIME = {
    **REPLICA, "minute": _time("at * 60000000000"), "k": "k", "rounds": "1700", "batch": "54400",
    "wall_us": "58000000. + r", "draft_us": "if(k = 0, 0., 17000000. + r)",
    "verify_us": "35000000. + r", "n_q": "272000", "n_kv": "49000000", "proposed": "217600",
    "accepted": "80000", "emitted": "134400", "version": VERSION,
    "wall_bins": "arrayMap(i -> toInt16(170 + i), range(20))",
    "wall_counts": "arrayMap(i -> toUInt64(85), range(20))",
}  # fmt: skip


if __name__ == "__main__":
    main()
