"""The hand-worked cases, as they are and with all counts tripled, labels renamed, order changed."""

import csv
import io
import json
import random
import re
from pathlib import Path

from specscope.analyze.collect import analyze

CASES = Path(__file__).parents[1] / "data" / "readers" / "cases"
FACTORS = (1, 3)


def run(name, factor, tmp_path, change=None, only=None):
    """Analyse a case; with factor 3 each file goes through `change(text, file name)` first."""
    folder = CASES / name
    files = [
        p for p in sorted(folder.iterdir()) if p.suffix != ".md" and (not only or p.name in only)
    ]
    if factor == 1:
        return analyze([str(p) for p in files]).as_json()
    out = tmp_path / name
    out.mkdir()
    for path in files:
        (out / path.name).write_text(change(path.read_text(), path.name))
    return analyze([str(out)]).as_json()


def tripled(text, *patterns):
    """Every number that a pattern's group holds, times 3; decimals keep their digits."""
    for pattern in patterns:
        text = re.sub(pattern, lambda m: m.group(0).replace(m.group(1), _times3(m.group(1))), text)
    return text


def _times3(number):
    digits = len(number.partition(".")[2])
    return f"{float(number) * 3:.{digits}f}" if digits else str(int(number) * 3)


def tripled_json(text, *keys):
    """Values under the keys times 3, at any depth; keys of each object in reverse order."""

    def walk(value):
        if isinstance(value, dict):
            return {k: v * 3 if k in keys else walk(v) for k, v in reversed(list(value.items()))}
        return [walk(v) for v in value] if isinstance(value, list) else value

    return json.dumps(walk(json.loads(text)))


def tripled_csv(text, columns, renamed=()):
    """Columns times 3, cells renamed, rows shuffled."""
    rows = list(csv.DictReader(io.StringIO(text)))
    random.Random(7).shuffle(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        row = {k: dict(renamed).get(v, v) for k, v in row.items()}
        writer.writerow({k: _times3(v) if k in columns and v else v for k, v in row.items()})
    return out.getvalue()


def shuffled(text):
    lines = text.splitlines()
    random.Random(11).shuffle(lines)
    return "\n".join(lines) + "\n"


def codes(result):
    return {finding["code"] for finding in result["findings"]}


def evidence(result, code, index=0):
    return [f["evidence"] for f in result["findings"] if f["code"] == code][index]


def actions(result):
    return [verdict["action"] for verdict in result["verdicts"]]


def speedups(result, metric):
    return {c["arm"]: c["speedup"] for c in result["comparisons"] if c["metric"] == metric}
