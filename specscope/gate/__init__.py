"""The gate: a readable table of draft lengths, and every step by which it may change.

table        cells, first match wins
evidence     block rows of one epoch, from the store
places       where each verdict applies: a cell's class, ranges and typical state
rules        one place: keep, enable, raise, lower, disable, or not yet
recommend    all places together: a new table, and what stands against it
plan         how long a verdict will take, and what it costs
diff, show   for a person
policies     the numbered, immutable policies in the store: apply, roll back, calibrate
export       the best table that an engine can express, with its regret
"""
