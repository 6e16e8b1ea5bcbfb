"""Faults of the product itself, planted so that the campaign shows that it would find them."""

import itertools

from specscope.service import writer
from specscope.store import ledger
from specscope.store.connection import Store


def plant(name):
    globals()[name]()


def acknowledges_first():
    """The sidecar is told that the store has a batch before it has."""
    keep = writer.Writer._keep

    def kept(self, batches):
        return keep(self, batches)

    def run(self):
        while any(turn := self._take()):
            asked, group = turn
            for one in asked:
                one()
            for batch, answer in group:
                answer(batch)
            if group:
                self._closing.wait(0.5)
                kept(self, [batch for batch, _ in group])

    writer.Writer._run = run


def forgets_a_row():
    """Every insert of rounds loses its last row."""
    insert = Store.insert

    def inserted(self, table, rows, token=""):
        insert(self, table, rows.slice(0, rows.num_rows - 1) if table == "round" else rows, token)

    Store.insert = inserted


def counts_backwards():
    """A later computation of a rollup has a lower version than an earlier one."""
    numbers = itertools.count(10**9, -1)
    ledger.seen = lambda store: next(numbers)
