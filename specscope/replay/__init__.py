"""The same trace against two endpoints: evidence of grade `replayed`.

trace the requests with their times, one JSON line each record a trace from the request rows of a
store prompted a trace from prompts schedule the trace cut into parts, and which endpoint each part
meets first client one request to one endpoint, and what was seen of its answer play all parts in
turn journal the parts that are done, so that a replay can go on counters what the endpoints' own
counters say of it contrast ratios of the two endpoints by class, with intervals judge a verdict per
class page the result as Markdown stored the result's verdicts in a store result the file that
`specscope gate recommend --accept-replayed` reads
"""
