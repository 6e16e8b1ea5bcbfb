"""The gate: every step that may change the table of draft lengths.

`specscope.policy` holds the table and the stored policies, `specscope.evidence` reads experiments,
and `specscope.assess` gives the verdicts.

places       where each verdict applies: a cell's class, ranges and typical state
rules        one place: keep, enable, raise, lower, disable, adopt a table, or not yet
along_load   places of one kind of traffic over rising load
replayed     cells that are based on a replay that a person accepted
recommend    all places together: a new table, and what stands against it
arms         the draft lengths and tables that an experiment compares
plan         how long a verdict takes, and what it costs
propose      the table that a model of the shared batch ranks first, as the arm of an experiment
autopilot    windows of trials within a loss budget; sight is what it looks at, pilot its command
show         all of it as lines for a person, and as JSON
export       the best table that an engine can express, with its regret
swap         the router's part of a crossover, for engines that cannot change k
cli, arguments, console               options, reading and printing
advice, changes, experiments          the commands
"""
