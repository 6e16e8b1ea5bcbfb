"""Pure mathematics from rounds and blocks to a verdict: numpy and scipy, no input or output.

closed_forms, leviathan, roofline, moe           what arithmetic alone says
raggedness, budget                               the same, for a batch and for a tree
traces                                           one set of phase times, judged as it came
acceptance, choice                               survival by position; which k was best
ratio, sequential, quantiles                     the statistics, from clusters and pairs
multiplicity, strata                             many comparisons; the mix of traffic
blocks, pairs, segments                          block rows by pair and by kind of traffic
checks, flags, contrast, summary                 what may be compared, and how
measures, offered, covariates                    in which metric, and with what held equal
verdicts, enough, allowance, sentences           a verdict a segment
fleet, switch                                    a verdict on the whole; a gate against a switch
outputs, lossless                                whether speculation left the output alone
shared_batch                                     whether each class of a batch is served in time
facts, surroundings, machine, reread             what is known about an arm beside its k0
causes, causes_of_*, cause, diagnosis            why it loses: a table of causes, looked through
steptime, objectives, planning, crossover, prices costs, metrics, time, a router's experiment, money
untried                                          what a length that nobody ran could reach at best

Nothing here offers a contrast between requests of one batch as a speedup: they share the
batch's time, so such a contrast returns tokens per round whatever a round cost.
"""
