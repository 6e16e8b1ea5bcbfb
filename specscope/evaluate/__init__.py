"""Pure mathematics from rounds and blocks to a verdict: numpy and scipy, no input or output.

closed_forms, leviathan, roofline, moe, raggedness    what arithmetic alone says
acceptance, choice                                    survival by position; which k was best
ratio, sequential, multiplicity, quantiles, strata    the statistics
blocks, contrast, verdicts, switch                    from block rows to verdicts
steptime, diagnosis, objectives, lossless             why, for what, and whether it is allowed

Nothing here offers a contrast between requests of one batch as a speedup: they share the
batch's time, so such a contrast returns tokens per round whatever a round cost.
"""
