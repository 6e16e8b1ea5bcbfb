"""`python upgrade.py STORE`: make a stopped store one of an earlier version, without two columns.

No engine here is preempted, so what is dropped of rounds says as much once it is added again.
"""

import sys

import chdb

connection = chdb.connect(sys.argv[1])
connection.query("ALTER TABLE specscope.round DROP COLUMN IF EXISTS preempted")
connection.query("ALTER TABLE specscope.batch DROP COLUMN IF EXISTS admitted_at")
connection.close()
