"""What a healed pipeline must hold, from raw rows and the writers' own logs.

`python check.py STORE HURT LOG...` prints one JSON line: counts and `violations`, a list of
sentences. HURT is a JSON object: what was done to the ring of a boot, by boot.

Shares no code with the product: reads the engine's files, counts in Python. Every record of a
boot up to its known end is stored once with its values, or in exactly one counted loss:

- a loss of `ring` names its records: none of them is stored, none is in two losses;
- a loss of `round`, `request` or `request_part` counts rows of one batch, and that batch lacks
  exactly so many;
- a batch that the disk of the spool lost together with the knowledge of its beginning has no
  count: it is the hole that the ledger has there, and a loss names that batch. An earlier sidecar
  names none: each such loss explains one hole, before a batch that is empty.

What nobody can know is where the records of a killed engine end: those that it had not written
yet. The known end is then where `tail_unknown` begins; the rest is at most UNWRITTEN records,
unless the ring was hurt as well.
"""

import json
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path

import chdb
from recorded import KINDS, as_stored, numbers, records_of
from rollups import check_rollups

FIRST_SEQ = 1
# A killed engine writes nothing for 20 ms and its longest pause under load; a record takes 4 ms.
UNWRITTEN = 64
NOT_LOST = ("guardrail", "classes_full")
SHOWN = 5


def main(folder, hurt, logs):
    connection = chdb.connect(str(folder))

    def rows(sql):
        text = connection.query(sql, "JSONCompactEachRow").bytes().decode()
        return [json.loads(line) for line in text.splitlines()]

    violations, counts = [], Counter()
    for log in logs:
        Boot(rows, Path(log), hurt, violations, counts).check()
    check_strangers(rows, logs, violations)
    check_rollups(rows, violations, counts)
    connection.close()
    sys.stdout.write(json.dumps({**counts, "violations": violations}) + "\n")


def check_strangers(rows, logs, violations):
    known = {records[0]["boot"] for log in logs if (records := records_of(log))}
    for table in ("round", "request", "request_part", "batch", "boot", "loss"):
        for boot, count in rows(
            f"SELECT boot, count() FROM specscope.{table} WHERE boot != '' GROUP BY boot"
        ):
            if boot not in known:
                violations.append(f"{table}: {count} rows of a boot that never was, {boot}")


class Boot:
    """One start of one engine: what it recorded against what the store has and counts."""

    def __init__(self, rows, log, hurt, violations, counts):
        self.rows, self.counts, self.violations = rows, counts, violations
        records = records_of(log)
        self.id = records[0]["boot"] if records else ""
        self.closed = bool(records) and records[-1]["kind"] == "closed"
        self.hurt = hurt.get(self.id, [])
        numbered = [record for record in records if record["kind"] in KINDS]
        self.truth = {FIRST_SEQ + i: record for i, record in enumerate(numbered)}
        self.last = max(self.truth, default=0)

    def wrong(self, text, seqs=()):
        seqs = sorted(seqs)
        more = f": {seqs[:SHOWN]}{'…' if len(seqs) > SHOWN else ''}" if seqs else ""
        hurt = f" (ring: {', '.join(self.hurt)})" if self.hurt else ""
        self.violations.append(f"{self.id}: {text}{more}{hurt}")

    def select(self, columns, table, more=""):
        return self.rows(
            f"SELECT {columns} FROM specscope.{table} FINAL WHERE boot = '{self.id}' {more}"
        )

    def check(self):
        if not self.id:
            return
        self.counts["boots"] += 1
        self.counts["killed"] += not self.closed
        self._read()
        self._check_ledger()
        self._check_ring_losses()
        self._check_rounds()
        self._check_requests()
        self._check_parts()

    # --- what is there ---

    def _read(self):
        self.batches = {
            int(number): tuple(map(int, rest))
            for number, *rest in self.select(
                "number, first_seq, next_seq, rounds, request_parts, requests", "batch"
            )
        }
        self.starts = sorted((b[0], number) for number, b in self.batches.items() if b[1] > b[0])
        self.whole, self.within, self.holes, self.tail = [], [], set(), None
        self.nameless_holes = 0
        for table, reason, first, count, number in self.select(
            "table, reason, first_seq, count, number", "loss"
        ):
            first, count, number = (None if x is None else int(x) for x in (first, count, number))
            if reason in NOT_LOST:
                continue
            if reason == "tail_unknown":
                self.tail = first if self.tail is None else min(first, self.tail)
            elif reason == "fault":
                self.wrong("its hook detached itself")
            elif table == "ring" and count is None and number is None:
                self.nameless_holes += 1
            elif table == "ring" and count is None:
                self.holes.add(number)
            elif table == "ring":
                self.whole.append((first, first + count, reason))
            elif table in ("round", "request", "request_part"):
                self.within.append((table, reason, first, count, number))
        self.end = max((b[1] for b in self.batches.values()), default=None)
        """The known end: what lies before it is accounted for."""

    def _batch_of(self, seq):
        place = bisect_right(self.starts, (seq, 1 << 62)) - 1
        return self.starts[place][1] if place >= 0 else None

    def _check_ledger(self):
        if not self.batches:
            # Nothing of it is known but that it was: it was killed before a sidecar saw its ring,
            # or the ring was hurt before that.
            self.counts["boots_unseen"] += 1
            if self.closed and not self.hurt:
                self.wrong("nothing of it is stored")
            self.end = FIRST_SEQ
            return
        numbers = sorted(self.batches)
        if numbers != list(range(1, len(numbers) + 1)):
            self.wrong(f"batches {numbers[:3]}…{numbers[-1]}: {len(numbers)} are in the ledger")
        after = FIRST_SEQ
        self.hole_seqs = set()
        for number in numbers:
            first, following = self.batches[number][:2]
            nameless = number not in self.holes and first == following and self.nameless_holes > 0
            if first > after and (nameless or number in self.holes):
                self.nameless_holes -= nameless
                self.hole_seqs |= set(range(after, first))
                self.counts["hole_records"] += first - after
            elif first != after:
                self.wrong(f"batch {number} begins at {first}, the one before ends at {after}")
            after = max(after, following)
        if self.tail is not None:
            self.counts["tails_unknown"] += 1
            if self.tail != self.end:
                self.wrong(f"its unknown tail begins at {self.tail}, its batches end at {self.end}")
            if self.closed and not self.hurt:
                self.wrong("it ended as it should, and its tail is said to be unknown")
        elif not self.closed:
            self.wrong("it was killed, and nothing says that its tail is unknown")
        left = self.last + 1 - self.end
        if self.closed and not self.hurt and left:
            self.wrong(f"{left} records after the last batch")
        elif not self.closed and not self.hurt and left > UNWRITTEN:
            self.wrong(f"{left} records in the tail; a killed engine loses at most {UNWRITTEN}")
        if left < (0 if self.closed else -1):  # killed between a record and its line
            self.wrong(f"batches account for {-left} records that nobody recorded")
        if left > 0:
            self.counts["tail_records"] += left
        if left > UNWRITTEN:
            self.counts["tail_records_of_hurt_rings"] += left

    def _check_ring_losses(self):
        self.lost = set()
        for first, after, reason in self.whole:
            seqs = set(range(max(first, FIRST_SEQ), after))
            if twice := seqs & self.lost:
                self.wrong(f"{len(twice)} records are in two losses, the second {reason}", twice)
            self.lost |= seqs
            self.counts[f"lost_{reason}"] += len(seqs)
        if beyond := {seq for seq in self.lost if seq >= self.end}:
            self.wrong(f"{len(beyond)} records are lost behind the last batch", beyond)

    # --- each kind of record ---

    def _expected(self, kinds):
        """Records that are in rows or in a batch's loss of rows."""
        return {
            seq
            for seq, record in self.truth.items()
            if record["kind"] in kinds and seq < self.end and seq not in self.lost
        }

    def _balance(self, table, missing, expected):
        """Each batch lacks as many rows as its losses count."""
        lacking, counted, said = Counter(), Counter(), defaultdict(list)
        for seq in missing:
            lacking[self._batch_of(seq)] += 1
        for of, reason, first, count, number in self.within:
            if of != table:
                continue
            place = number if number in self.batches else None
            if place is None and first is not None:
                place = self._batch_of(first)
            if count is None:
                self.wrong(f"a loss of {table} has no count ({reason}, batch {number})")
                continue
            counted[place] += count
            said[place].append(reason)
            self.counts[f"lost_{table}_{reason}"] += count
        for number in sorted(lacking.keys() | counted.keys(), key=str):
            if lacking[number] != counted[number]:
                self.wrong(
                    f"batch {number} {self.batches.get(number)} lacks {lacking[number]} of "
                    f"{table}, losses count {counted[number]} {said[number]}; "
                    f"{len(expected)} expected in all"
                )

    def _check_rounds(self):
        expected = self._expected(("round",))
        stored = {}
        columns = (
            "seq, batch, k, proposed, accepted, emitted, n_q, n_kv, waiting, padded_tokens, "
            "toUnixTimestamp64Nano(started_at), wall_us, draft_us"
        )
        for seq, *values in self.select(columns, "round"):
            if int(seq) in stored:
                self.wrong("a round is stored twice", [int(seq)])
            stored[int(seq)] = values
        rounds = {seq for seq, record in self.truth.items() if record["kind"] == "round"}
        self.counts["recorded"] += len(rounds)
        self.counts["stored"] += len(stored)
        if strange := {s for s in stored if s not in rounds and s <= self.last}:
            self.wrong(f"{len(strange)} rounds that are other records", strange)
        if strange := {s for s in stored if s > self.last + (not self.closed)}:
            self.wrong(f"{len(strange)} rounds that nobody recorded", strange)
        if both := set(stored) & self.lost:
            self.wrong(f"{len(both)} rounds are stored and counted lost", both)
        if behind := {seq for seq in stored if seq >= self.end}:
            self.wrong(f"{len(behind)} rounds are stored behind the last batch", behind)
        different = {
            seq
            for seq, values in stored.items()
            if seq in rounds and numbers(values) != as_stored(self.truth[seq])
        }
        if different:
            seq = min(different)
            self.wrong(
                f"{len(different)} rounds differ: {numbers(stored[seq])} is stored, "
                f"{as_stored(self.truth[seq])} was recorded",
                different,
            )
        self._balance("round", expected - set(stored) - self.hole_seqs, expected)
        self.counts["missing"] += len(rounds - set(stored))
        self.round_seqs = expected

    def _check_requests(self):
        """The newest row of a request that was not lost stands."""
        found = defaultdict(list)
        for request, *row in self.select(
            "toString(request), seq, class, prompt_tokens, requested_output, output_tokens, "
            "toString(digest), reason",
            "request",
        ):
            found[int(request)].append(row)
        stands = dict(found)
        admitted, ended = {}, {}
        for seq, record in self.truth.items():
            if record["kind"] == "admitted":
                admitted[record["request"]] = seq
            elif record["kind"] == "ended":
                ended[record["request"]] = seq
        expected = self._expected(("admitted", "ended"))
        rows = {number: batch[4] for number, batch in self.batches.items()}
        recorded, counted = Counter(map(self._batch_of, expected - self.hole_seqs)), Counter()
        partly = set()
        for of, reason, first, count, number in self.within:
            if of == "request" and count is not None:
                place = number if number in self.batches else self._batch_of(first or 0)
                counted[place] += count
                self.counts[f"lost_request_{reason}"] += count
        for number in recorded.keys() | counted.keys():
            if recorded[number] != rows.get(number, 0) + counted[number]:
                self.wrong(
                    f"batch {number}: {recorded[number]} request records, {rows.get(number)} "
                    f"stored, {counted[number]} counted lost"
                )
            if counted[number] > 0:
                partly.add(number)
        for request, first in admitted.items():
            self.counts["requests"] += 1
            row = found.pop(request, [])
            if len(row) > 1:
                self.wrong(f"request {request} is stored {len(row)} times")
            seqs = [s for s in (first, ended.get(request)) if s is not None]
            sure = [
                s for s in seqs
                if s in expected and s not in self.hole_seqs and self._batch_of(s) not in partly
            ]  # fmt: skip
            if not row:
                if sure:
                    self.wrong(f"request {request} is not stored", sure)
                continue
            seq, label, prompt, asked, output, digest, reason = row[0]
            end = ended.get(request)
            if int(seq) not in seqs or (sure and int(seq) < max(sure)):
                if int(seq) > self.last and not self.closed:
                    continue  # its end was recorded, and no line of it written
                self.wrong(f"request {request}: record {seq} stands, of {seqs}")
                continue
            record = self.truth[first]
            same = label == record["label"] and int(prompt) == record["prompt"]
            same &= int(asked) == record["asked"]
            if int(seq) == end:
                same &= int(output) == self.truth[end]["tokens"] and reason == "length"
                same &= int(digest) == request ^ 1
            else:
                same &= output is None and reason == "none"
            if not same:
                self.wrong(f"request {request} is stored as {row[0]}, recorded was {record}")
        both = {int(row[0]) for rows in stands.values() for row in rows} & self.lost
        if both:
            self.wrong(f"{len(both)} request records are stored and counted lost", both)
        if found and (self.closed or len(found) > 1):
            self.wrong(f"requests that nobody admitted: {list(found)[:SHOWN]}")

    def _check_parts(self):
        """Each request's rounds are in one part each, or in parts that are counted lost."""
        took = defaultdict(dict)
        for seq in self.truth:
            record = self.truth[seq]
            if record["kind"] == "round":
                for place, request in enumerate(record["requests"]):
                    took[request][seq] = place
        covered = set()
        for request, first, last, count, k, accepted, emitted, label in self.select(
            "toString(request), first_seq, last_seq, rounds, k, accepted, emitted, class",
            "request_part",
        ):
            request = int(request)
            every = [s for s in sorted(took[request]) if int(first) <= s <= int(last)]
            seqs = [s for s in every if s not in self.lost]
            if int(count) == len(every):  # its rounds were lost after it was stored
                seqs = every
            self.counts["parts"] += 1
            if int(last) > self.last and not self.closed:
                continue
            truth = [[self.truth[s][n][took[request][s]] for s in seqs]
                     for n in ("k", "accepted", "emitted")]  # fmt: skip
            said = [k, accepted, emitted or [x + 1 for x in accepted]]
            if int(count) != len(seqs) or truth != said:
                self.wrong(f"a part of request {request} from {first} to {last} differs")
            elif label != self.truth[seqs[0]]["classes"][took[request][seqs[0]]]:
                self.wrong(f"a part of request {request} has the class {label}")
            for seq in seqs:
                if (request, seq) in covered:
                    self.wrong(f"a round of request {request} is in two parts", [seq])
                covered.add((request, seq))
        lacking = set()
        for request, places in took.items():
            for seq in places:
                known = seq in self.round_seqs and seq not in self.hole_seqs
                if known and (request, seq) not in covered:
                    lacking.add((request, self._batch_of(seq)))
        missing = [self.batches[number][0] for _, number in lacking if number in self.batches]
        self._balance("request_part", missing, took)

    hole_seqs = frozenset()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), sys.argv[3:])
