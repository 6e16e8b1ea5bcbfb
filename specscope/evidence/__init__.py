"""Evidence: the input of all verdicts, read from the store once for a period.

read         blocks, parts, crossovers, outputs, machines and policies as one `Evidence`
records      rows of the store as the evaluator's records
guardrail    pairs that a guardrail cut are void
tables       blocks of a table that another one replaced do not count
crossovers   the sides of a crossover by router, and the configuration that each ran
classes      the delays of each class in shared batches
outputs      outputs of the same requests in two arms
residence    how long requests stay, and the length of blocks that this asks for
"""
