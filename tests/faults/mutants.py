"""Faults of the product itself, planted so that the campaign shows that it would find them.

Each is a function by its name; the process of its role calls it before anything else runs.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """What a small campaign needs to find it."""

    only: frozenset[str]
    faults: int = 6
    spool_bytes: int = 8 << 20
    pace_s: float = 0.5


def kinds(*names):
    return frozenset(names)


MUTANTS = {
    "service_forgets_a_row": Mutant(kinds("cut")),
    "service_acknowledges_before_it_stores": Mutant(kinds("kill_service"), 5, pace_s=4.0),
    "service_inserts_twice_and_rolls_both": Mutant(kinds("cut")),
    "service_leaves_rollups_stale": Mutant(kinds("cut")),
    "service_skips_losses": Mutant(kinds("step_engine", "cut_spool"), 12),
    "service_refuses_uncounted": Mutant(kinds("step_engine"), 8),
    "service_changes_a_value": Mutant(kinds("cut")),
    "service_skips_the_ledger": Mutant(kinds("kill_service", "kill_agent"), 5, pace_s=3.0),
    "service_drops_requests_uncounted": Mutant(kinds("cut")),
    "service_counts_lost_the_requests_it_stores": Mutant(
        kinds("kill_service", "cut_spool", "damage_spool"), 24, pace_s=2.0
    ),
    "service_counts_lost_the_rows_it_refuses": Mutant(
        kinds("kill_service", "step_service"), 24, pace_s=2.0
    ),
    "agent_loses_a_batch": Mutant(kinds("cut")),
    "agent_deletes_what_it_sends": Mutant(kinds("cut", "kill_service"), 6, pace_s=3.0),
    "agent_hides_gaps": Mutant(kinds("cut_ring"), 6, pace_s=2.0),
    "agent_sheds_uncounted": Mutant(kinds("refuse", "cut"), 20, 1 << 20),
    "agent_skips_torn_batches": Mutant(kinds("cut_spool", "kill_agent", "refuse"), 12),
    "agent_knows_every_tail": Mutant(kinds("kill_engine"), 6),
    "agent_swaps_two_classes": Mutant(kinds("cut")),
    "engine_drops_in_silence": Mutant(kinds("cut")),
}


def plant(name):
    globals()[name]()


# --- service ---


def service_forgets_a_row():
    """Every insert of rounds loses its last row."""
    from specscope.store.connection import Store

    insert = Store.insert

    def inserted(self, table, rows, token=""):
        insert(self, table, rows.slice(0, rows.num_rows - 1) if table == "round" else rows, token)

    Store.insert = inserted


def service_acknowledges_before_it_stores():
    """The answer goes out at once; the rows follow when there is time."""
    from specscope.service.writer import Writer

    offer = Writer.offer

    def offered(self, batch, answer):
        answer(batch)
        offer(self, batch, lambda batch: None)

    Writer.offer = offered


def service_inserts_twice_and_rolls_both():
    """Rows go in twice, and rollups read all of them."""
    from specscope.store import roll, rollup_sql
    from specscope.store.connection import Store

    insert = Store.insert

    def inserted(self, table, rows, token=""):
        insert(self, table, rows, token)
        if table == "round":
            insert(self, table, rows, f"{token}-again")

    Store.insert = inserted
    rollup_sql.MINUTE_TIME = roll.rollup_sql.MINUTE_TIME = rollup_sql.MINUTE_TIME.replace(
        "round FINAL", "round"
    )


def service_leaves_rollups_stale():
    """A third of the batches is marked as counted, and nothing is computed for them."""
    from specscope.store.dirty import Dirty

    note, seen = Dirty.note, []

    def noted(self, store, stretches, wait):
        seen.append(wait)
        if len(seen) % 3 == 0:
            return
        note(self, store, stretches, wait)

    Dirty.note = noted
    from specscope.store.roll import Roller

    Roller.recover = lambda self: None


def service_skips_losses():
    """Rows of `loss` are acknowledged and thrown away."""
    from specscope.store.connection import Store

    insert = Store.insert

    def inserted(self, table, rows, token=""):
        if table != "loss":
            insert(self, table, rows, token)

    Store.insert = inserted


def service_refuses_uncounted():
    """What is refused for its clock leaves no loss."""
    from specscope.service.intake import Admitted

    Admitted.refuse = lambda self, *values: None


def service_changes_a_value():
    """A token more in the last round of an insert."""
    import pyarrow as pa

    from specscope.store.connection import Store

    insert = Store.insert

    def inserted(self, table, rows, token=""):
        if table == "round":
            place = rows.schema.get_field_index("emitted")
            values = rows.column(place).to_pylist()
            values[-1] += 1
            field = rows.schema.field(place)
            rows = rows.set_column(place, field, pa.array(values, field.type))
        insert(self, table, rows, token)

    Store.insert = inserted


def service_skips_the_ledger():
    """Every second insert into the ledger is forgotten."""
    from specscope.store.connection import Store

    insert, seen = Store.insert, []

    def inserted(self, table, rows, token=""):
        seen.append(table)
        if table != "batch" or seen.count("batch") % 2:
            insert(self, table, rows, token)

    Store.insert = inserted


def service_drops_requests_uncounted():
    """The first request record of a batch is neither stored nor counted."""
    from specscope.service.writer import Writer

    offer = Writer.offer

    def offered(self, batch, *more):
        if "request" in batch.tables:
            batch.tables["request"] = batch.tables["request"].slice(1)
        offer(self, batch, *more)

    Writer.offer = offered


def service_counts_lost_the_requests_it_stores():
    """A loss is cut to what is missing of rounds alone. Kills come between rows and ledger."""
    import time

    from specscope.service import overlap
    from specscope.store.connection import Store

    between, insert = overlap._between, Store.insert

    def without_requests(*values):
        return [run for run in between(*values) if run.get("table") != "request"]

    def inserted(self, table, rows, token=""):
        if table == "batch":
            time.sleep(3.0)
        insert(self, table, rows, token)

    overlap._between = without_requests
    Store.insert = inserted


def service_counts_lost_the_rows_it_refuses():
    """The store is not asked for refused rows. Kills come between rows and ledger."""
    import time

    from specscope.service.overlap import Overlap
    from specscope.store.connection import Store

    insert = Store.insert

    def inserted(self, table, rows, token=""):
        if table == "batch":
            time.sleep(3.0)
        insert(self, table, rows, token)

    Overlap._meet_refused = lambda self, table, batches: None
    Store.insert = inserted


# --- agent ---


def agent_loses_a_batch():
    """Every fifth batch goes into the spool without its rows."""
    from specscope_agent.spool import Spool

    add, seen = Spool.add, []

    def added(self, source, cursor, tables, said=()):
        seen.append(source)
        return add(self, source, cursor, [] if len(seen) % 5 == 0 else tables, said)

    Spool.add = added


def agent_deletes_what_it_sends():
    """A batch is deleted once it is on its way."""
    from specscope_agent.spool import Spool

    take = Spool.take

    def taken(self, source, number):
        batch = take(self, source, number)
        if batch is not None:
            self.acknowledge(source, [number])
        return batch

    Spool.take = taken


def agent_hides_gaps():
    """Records that the ring lost are no loss."""
    from specscope_agent.loss import Losses

    add = Losses.add

    def added(self, table, reason, *values, **more):
        if table != "ring" or reason == "tail_unknown":
            add(self, table, reason, *values, **more)

    Losses.add = added


def agent_sheds_uncounted():
    """A full spool gives rows up without a word."""
    from specscope_agent import shedding, spool

    def without(batch, tables):
        kept = tuple(table for table in batch.tables if table.name not in tables)
        return shedding.replace(batch, tables=kept)

    spool.without = without


def agent_skips_torn_batches():
    """A batch that the disk spoilt is left out, and its number with it."""
    from specscope_agent.lane import Lane

    Lane.holes = lambda self: []


def agent_knows_every_tail():
    """A killed engine is said to have ended as it should."""
    from specscope_agent.drain import Drain

    Drain._lose_tail = lambda self, newest: self._say_end(
        newest, {"replica": newest.source.replica, "boot": newest.source.boot}
    )


def agent_swaps_two_classes():
    """The first two classes of the dictionary have each other's names."""
    from specscope_hook.reader import RingReader

    names = RingReader.names

    def swapped(self, kind):
        found = names(self, kind)
        if kind == 0 and len(found) > 1:
            found[0], found[1] = found[1], found[0]
        return found

    RingReader.names = swapped


# --- engine ---


def engine_drops_in_silence():
    """Every hundredth record is dropped and its number given to the next."""
    from specscope_hook.ring import Ring

    push, seen = Ring.push, []

    def pushed(self, kind, payload, batch=0):
        seen.append(kind)
        return True if len(seen) % 100 == 0 else push(self, kind, payload, batch)

    Ring.push = pushed
