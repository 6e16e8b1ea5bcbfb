"""The service, killed by itself at one exact moment: `python dying_service.py TABLE NUMBER`.

It dies right after the engine has taken the NUMBERth insert into TABLE: into `round`, between
the rows and the ledger; into `batch`, between the ledger and the acknowledgement.
"""

import os
import signal
import sys

from specscope.cli import main
from specscope.store.connection import Store

TABLE, NUMBER = sys.argv[1], int(sys.argv[2])
insert, seen = Store.insert, []


def insert_and_perhaps_die(self, table, rows, token=""):
    insert(self, table, rows, token)
    if table == TABLE:
        seen.append(table)
        if len(seen) == NUMBER:
            os.kill(os.getpid(), signal.SIGKILL)


Store.insert = insert_and_perhaps_die
sys.exit(main(["serve"]))
