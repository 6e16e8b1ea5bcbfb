"""Pure functions from rounds and blocks to a verdict: numpy and scipy, no files and no network.

statistics    ratios of sums, confidence sequences, quantiles, survival, multiplicity
experiment    blocks, pairs, segments; which pairs are comparable, and contrasts with k0
costs         the cost of a round: phase times, roofline, fits of the step time
causes        why an arm loses: a table of causes, checked in order
outputs       whether speculation preserves the output distribution
proposal      which table is worth an experiment on mixed traffic
verdict       one verdict per segment, and one on all traffic

No function compares requests of one batch. They share the batch's time, so the ratio of their
speeds equals tokens per round, whatever the round cost.
"""
