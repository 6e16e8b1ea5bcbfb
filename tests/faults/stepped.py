"""`python stepped.py FILE MODULE-OR-SCRIPT ARGUMENT...`: a process whose wall clock can be set.

FILE holds the offset in ns as 8 bytes; the process reads it whenever it asks for the time. The
engine of the store keeps its own clock.
"""

import mmap
import os
import runpy
import struct
import sys
import time

path, target, *arguments = sys.argv[1:]
descriptor = os.open(path, os.O_RDWR)
shared = mmap.mmap(descriptor, 8)
time_ns = time.time_ns
time.time_ns = lambda: time_ns() + struct.unpack("<q", shared[:8])[0]
time.time = lambda: time.time_ns() / 1e9
sys.argv = [target, *arguments]
if mutant := os.environ.get("MUTANT"):
    sys.path.insert(0, os.path.dirname(__file__))
    import mutants

    mutants.plant(mutant)
if target.endswith(".py"):
    sys.path.insert(0, os.path.dirname(target))
    runpy.run_path(target, run_name="__main__")
else:
    runpy.run_module(target, run_name="__main__", alter_sys=True)
