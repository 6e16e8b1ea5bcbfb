"""What a healed pipeline must hold, from raw rows and the writers' own logs.

`python check.py STORE LOG...` prints one JSON line: counts and `violations`, a list of sentences.
Shares no code with the product: reads the engine's files, counts in Python.
"""

import json
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path

import chdb

FIRST_SEQ = 1
KINDS = ("admitted", "round", "ended")


def main(folder, logs):
    connection = chdb.connect(str(folder))

    def rows(sql):
        text = connection.query(sql, "JSONCompactEachRow").bytes().decode()
        return [json.loads(line) for line in text.splitlines()]

    violations, counts = [], Counter()
    for log in logs:
        check_boot(rows, Path(log), violations, counts)
    check_rollups(rows, violations, counts)
    connection.close()
    sys.stdout.write(json.dumps({**counts, "violations": violations}) + "\n")


def check_boot(rows, log, violations, counts):
    records = []
    for line in log.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break  # the engine was killed within a line
    if not records:
        return
    boot, ended = records[0]["boot"], records[-1]["kind"] == "closed"
    numbered = [record for record in records if record["kind"] in KINDS]
    truth = {FIRST_SEQ + i: record for i, record in enumerate(numbered)}
    rounds = {seq: sum(r["emitted"]) for seq, r in truth.items() if r["kind"] == "round"}
    where = f"WHERE boot = '{boot}'"
    stored = {
        int(seq): int(emitted)
        for seq, emitted in rows(f"SELECT seq, emitted FROM specscope.round FINAL {where}")
    }
    (once,) = rows(f"SELECT count(), uniqExact(seq) FROM specscope.round FINAL {where}")
    last = max(truth, default=0)
    counts["boots"] += 1
    counts["recorded"] += len(rounds)
    counts["stored"] += len(stored)
    if int(once[0]) != int(once[1]):
        violations.append(f"{boot}: {once[0]} rounds, {once[1]} of them distinct")
    wrong = [s for s, e in stored.items() if s <= last and rounds.get(s) != e]
    if wrong:
        violations.append(f"{boot}: {len(wrong)} rounds differ from what was recorded: {wrong[:5]}")
    beyond = [seq for seq in stored if seq > last + (0 if ended else 64)]
    if beyond:
        violations.append(f"{boot}: rounds that nobody recorded: {beyond[:5]}")

    batches = sorted(
        (int(first), int(after))
        for first, after in rows(f"SELECT first_seq, next_seq FROM specscope.batch FINAL {where}")
    )
    starts = [first for first, _ in batches]
    losses = rows(
        f"SELECT table, reason, first_seq, count FROM specscope.loss FINAL {where} "
        "AND reason NOT IN ('guardrail', 'classes_full')"
    )
    whole, within, tail = [], [], None
    for table, reason, first, count in losses:
        if reason == "tail_unknown":
            tail = min(int(first or 0), tail if tail is not None else 1 << 62)
        elif table in ("ring", "round"):
            first = FIRST_SEQ if first is None else int(first)
            end = 1 << 62 if count is None else first + int(count)
            if table == "round":
                place = max(bisect_right(starts, first) - 1, 0)
                end = batches[place][1] if batches else end
                within.append((first, end, count))
            else:
                whole.append((first, end))
    missing = [seq for seq in rounds if seq not in stored]
    counts["missing"] += len(missing)
    uncounted = [
        seq
        for seq in missing
        if not any(first <= seq < end for first, end in whole)
        and not any(first <= seq < end for first, end, _ in within)
        and not (tail is not None and seq >= tail)
        and not (not ended and not batches)
    ]
    if not ended and tail is None:  # killed, and nothing of its end was seen
        after = batches[-1][1] if batches else 0
        uncounted = [seq for seq in uncounted if seq < after]
    if uncounted:
        violations.append(f"{boot}: {len(uncounted)} rounds are nowhere: {uncounted[:5]}")
    both = [seq for seq in stored if any(first <= seq < end for first, end in whole)]
    if both:
        violations.append(f"{boot}: {len(both)} rounds are stored and counted lost: {both[:5]}")
    if not ended:
        counts["killed"] += 1
    for (request,) in rows(
        f"SELECT toString(request) FROM specscope.request FINAL {where} AND reason != 'none'"
        " GROUP BY request HAVING count() > 1"
    ):
        violations.append(f"{boot}: request {request} is stored twice")
    tokens = {r["request"]: r["tokens"] for r in numbered if r["kind"] == "ended"}
    for request, output in rows(
        f"SELECT toString(request), output_tokens FROM specscope.request FINAL {where}"
        " AND isNotNull(ended_at)"
    ):
        counts["requests"] += 1
        if tokens.get(int(request), int(output)) != int(output):
            violations.append(f"{boot}: request {request} has {output} tokens")


def check_rollups(rows, violations, counts):
    """Minutes from rounds and parts, one row after another; the newest row of a key stands."""
    truth = defaultdict(lambda: [0, 0, 0])
    for at, replica, k, emitted, accepted in rows(
        "SELECT toStartOfMinute(started_at), replica, k, emitted, accepted"
        " FROM specscope.round FINAL"
    ):
        sums = truth[at, replica, int(k)]
        for i, value in enumerate((1, emitted, accepted)):
            sums[i] += int(value)
    newest = {}
    for at, replica, k, rounds, emitted, accepted, version in rows(
        "SELECT minute, replica, k, rounds, emitted, accepted, version FROM specscope.minute_time"
    ):
        key = (at[:19], replica, int(k))
        if int(version) >= newest.get(key, (0,))[0]:
            newest[key] = (int(version), [int(rounds), int(emitted), int(accepted)])
    counts["minute_cells"] += len(truth)
    for key, sums in truth.items():
        computed = newest.get((key[0][:19], *key[1:]), (0, None))[1]
        if computed != sums:
            violations.append(f"minute {key}: rolled {computed}, rows say {sums}")
    classes = defaultdict(lambda: [0, 0])
    for at, name, k, accepted in rows(
        "SELECT toStartOfHour(started_at), class, k, accepted FROM specscope.request_part FINAL"
    ):
        for length, kept in zip(k, accepted, strict=True):
            sums = classes[at[:19], name, int(length)]
            sums[0] += 1
            sums[1] += int(kept)
    hours = defaultdict(lambda: [0, 0])
    latest = {}
    for row in rows(
        "SELECT hour, class, k, epoch, context_bucket, arm, request_rounds, accepted, version"
        " FROM specscope.hour"
    ):
        key = (row[0][:19], row[1], int(row[2]), row[3], row[4], row[5])
        if int(row[8]) >= latest.get(key, (0,))[0]:
            latest[key] = (int(row[8]), int(row[6]), int(row[7]))
    for key, (_, request_rounds, accepted) in latest.items():
        sums = hours[key[:3]]
        sums[0] += request_rounds
        sums[1] += accepted
    counts["hour_cells"] += len(classes)
    for key, sums in classes.items():
        if hours.get(key) != sums:
            violations.append(f"hour {key}: rolled {hours.get(key)}, rows say {sums}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
