"""Recount a store against what its writers say they did. Shares no code with the product.

`python recount.py STORE_FOLDER LOG...` prints one JSON line: what was recorded, stored and lost,
and how many rows came twice. Reads the embedded engine's files directly; nothing else may own them.
"""

import json
import sys
from pathlib import Path

import chdb


def main(folder, logs):
    connection = chdb.connect(str(folder))

    def one(sql):
        return [int(value) for value in str(connection.query(sql, "TSV")).split()]

    counts = {"recorded": 0, "stored": 0, "lost": 0, "twice": 0, "wrong_sum": 0}
    for log in logs:
        records = [json.loads(line) for line in Path(log).read_text().splitlines()]
        boot = records[0]["boot"]
        counts["recorded"] += sum(
            1 for record in records if record["kind"] in ("admitted", "round", "ended")
        )
        where = f"FROM specscope.{{}} FINAL WHERE boot = '{boot}'"
        rounds, distinct = one(f"SELECT count(), uniqExact(seq) {where.format('round')}")
        requests, running = one(
            f"SELECT count(), countIf(ended_at IS NULL) {where.format('request')}"
        )
        (lost,) = one(f"SELECT toUInt64(sum(ifNull(count, 0))) {where.format('loss')}")
        counts["twice"] += rounds - distinct
        counts["stored"] += rounds + 2 * requests - running
        counts["lost"] += lost
        emitted_by_rounds, emitted_by_requests = one(
            f"SELECT (SELECT sum(emitted) {where.format('round')}), "
            f"(SELECT sum(output_tokens) {where.format('request')})"
        )
        emitted = sum(sum(r["emitted"]) for r in records if r["kind"] == "round")
        counts["wrong_sum"] += abs(emitted - emitted_by_rounds) + abs(emitted - emitted_by_requests)
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
