"""Faults of the product itself, planted so that the campaign shows that it would find them."""

from specscope.store.connection import Store


def plant(name):
    globals()[name]()


def forgets_a_row():
    """Every insert of rounds loses its last row."""
    insert = Store.insert

    def inserted(self, table, rows, token=""):
        insert(self, table, rows.slice(0, rows.num_rows - 1) if table == "round" else rows, token)

    Store.insert = inserted
