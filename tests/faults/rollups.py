"""Rollups recomputed from raw rows, one row after another; the newest row of a key stands.

Shares no code with the product.
"""

from collections import defaultdict


def check_rollups(rows, violations, counts):
    """Minutes and hours against the rounds and parts that the store has."""
    rounds = rows(
        "SELECT toStartOfMinute(started_at), replica, ifNull(arm, ''), k, batch, proposed,"
        " accepted, emitted, n_q, n_kv, waiting, padded_tokens FROM specscope.round FINAL"
    )
    parts = rows(
        "SELECT toStartOfMinute(started_at), toStartOfHour(started_at), replica, boot,"
        " toString(request), class, k, accepted, emitted, context FROM specscope.request_part FINAL"
    )
    epochs = dict(rows("SELECT boot, any(epoch) FROM specscope.boot GROUP BY boot"))
    _minute_times(rows, rounds, violations, counts)
    _minutes(rows, parts, violations, counts)
    _hours(rows, parts, epochs, violations, counts)


def _minute_times(rows, rounds, violations, counts):
    names = "rounds, batch, proposed, accepted, emitted, n_q, n_kv, waiting, padded_tokens"
    truth = defaultdict(lambda: [0] * 9)
    for at, replica, arm, k, *values in rounds:
        for i, value in enumerate((1, *values)):
            truth[at[:19], replica, arm, int(k)][i] += int(value)
    newest = _newest(
        rows(
            f"SELECT minute, replica, ifNull(arm, ''), k, version, {names}"
            " FROM specscope.minute_time"
        ),
        4,
    )
    counts["minute_time_cells"] += len(truth)
    _compare("minute_time", truth, newest, violations)


def _minutes(rows, parts, violations, counts):
    truth = defaultdict(lambda: [0, 0, 0, 0, [], 0])
    for at, _, replica, _, _, label, k, accepted, emitted, context in parts:
        emitted = emitted or [kept + 1 for kept in accepted]
        before = int(context)
        for length, kept, out in zip(k, accepted, emitted, strict=True):
            cell = truth[at[:19], replica, label, int(length)]
            for i, value in enumerate((1, length, kept, out)):
                cell[i] += int(value)
            cell[4] += [0] * (length + 1 - len(cell[4]))
            cell[4][kept] += 1
            cell[5] += before
            before += out
    newest = _newest(
        rows(
            "SELECT minute, replica, class, k, version, request_rounds, proposed, accepted,"
            " emitted, accepted_length, context FROM specscope.minute"
        ),
        4,
    )
    counts["minute_cells"] += len(truth)
    _compare("minute", truth, newest, violations)


def _hours(rows, parts, epochs, violations, counts):
    truth = defaultdict(lambda: [0, 0, 0])
    for _, at, _, boot, _, label, k, accepted, emitted, _ in parts:
        emitted = emitted or [kept + 1 for kept in accepted]
        for length, kept, out in zip(k, accepted, emitted, strict=True):
            cell = truth[at[:19], label, int(length), epochs.get(boot, "")]
            for i, value in enumerate((1, kept, out)):
                cell[i] += int(value)
    newest = _newest(
        rows(
            "SELECT hour, class, k, epoch, context_bucket, ifNull(arm, ''), tenant, version,"
            " request_rounds, accepted, emitted FROM specscope.hour"
        ),
        7,
    )
    summed = defaultdict(lambda: [0, 0, 0])
    for key, values in newest.items():
        for i, value in enumerate(values):
            summed[key[:4]][i] += value
    counts["hour_cells"] += len(truth)
    left = {key for key, values in summed.items() if not any(values) and key not in truth}
    _compare("hour", truth, {key: summed[key] for key in summed.keys() - left}, violations)


def _newest(rows, keys):
    """The values of each key's row with the highest version."""
    found = {}
    for row in rows:
        key = (row[0][:19], *(int(x) if isinstance(x, int) else x for x in row[1:keys]))
        version, values = int(row[keys]), row[keys + 1 :]
        if version >= found.get(key, (0, None))[0]:
            found[key] = (
                version,
                [[int(y) for y in x] if isinstance(x, list) else int(x) for x in values],
            )
    return {key: values for key, (_, values) in found.items()}


def _compare(table, truth, rolled, violations):
    for key in truth.keys() | rolled.keys():
        if truth.get(key) != rolled.get(key):
            violations.append(f"{table} {key}: rolled {rolled.get(key)}, rows say {truth.get(key)}")
