"""Propose a table for an experiment on mixed traffic: a model ranks, the experiment decides.

rounds    sums over rounds of one shape, as they were stored
costs     what a round costs: verify pass, draft, all else, and what unequal drafts save
traffic   the classes: their shares, and the tokens that a round yields at each draft length
ranking   every table under that model, and how sure the best one is
"""
