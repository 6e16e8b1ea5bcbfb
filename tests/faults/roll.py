"""`python roll.py STORE`: what a service would roll as soon as every minute is closed."""

import os
import sys

from specscope.store.connection import Store
from specscope.store.roll import Roller

if mutant := os.environ.get("MUTANT"):
    import mutants

    mutants.plant(mutant)
with Store.open(sys.argv[1], min_free=0) as store:
    roller = Roller(store)
    roller.recover()
    roller.tick(everything=True)
