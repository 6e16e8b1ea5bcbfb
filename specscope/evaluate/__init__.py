"""Pure mathematics from rounds and blocks to a verdict: numpy and scipy, no input or output.

statistics    ratios of sums, confidence sequences, quantiles, survival, multiplicity
experiment    blocks, pairs, segments; which pairs compare, and how an arm contrasts with k0
costs         what a round costs: phase times, roofline, fits of the step time
causes        why an arm loses: a table of causes, looked through in order
outputs       whether speculation left the output alone
verdict       one verdict a segment, and one on all traffic

Nothing here offers a contrast between requests of one batch as a speedup: they share the
batch's time, so such a contrast returns tokens per round whatever a round cost.
"""
