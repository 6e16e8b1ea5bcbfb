"""Replay one trace on two endpoints, for evidence of grade `replayed`.

trace      the requests with their times, one JSON line each
record     a trace from the request rows of a store
prompted   a trace from prompts
schedule   the parts of the trace, and the order of the endpoints in each
client     one request to one endpoint, and its timed answer
play       run all parts
journal    finished parts, so that a replay can resume
counters   the endpoints' own counters
contrast   ratios of the two endpoints by class, with intervals
judge      a verdict per class
page       the result as Markdown
stored     the result's verdicts in a store
result     the file that `specscope gate recommend --accept-replayed` reads
"""
