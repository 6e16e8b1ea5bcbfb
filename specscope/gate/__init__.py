"""The gate: a readable table of draft lengths, and every step by which it may change.

table        cells, first match wins
evidence     block rows of one epoch, from the store
places       where each verdict applies: a cell's class, ranges and typical state
rules        one place: keep, enable, raise, lower, disable, or not yet
recommend    all places together: a new table, and what stands against it
plan         how long a verdict will take, and what it costs
show         all of it as lines for a person, and as JSON
policies     the numbered, immutable policies in the store: apply, roll back, calibrate
export       the best table that an engine can express, with its regret
sides, side_checks, crossover, swap   engines that cannot change k: a router's experiment
cli, arguments, console               what can be asked for, read and printed
advice, changes, experiments          the commands: what should be, what changes, what is tried
"""
