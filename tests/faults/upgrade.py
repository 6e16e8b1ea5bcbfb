"""`python upgrade.py STORE`: make a stopped store one of an earlier version, without a column."""

import sys

import chdb

connection = chdb.connect(sys.argv[1])
connection.query("ALTER TABLE specscope.round DROP COLUMN IF EXISTS padded_tokens")
connection.query("ALTER TABLE specscope.batch DROP COLUMN IF EXISTS admitted_at")
connection.close()
