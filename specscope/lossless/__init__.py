"""Greedy outputs of two OpenAI-compatible servers, with and without speculation, compared.

client   one question, one answer
ask      three runs over both servers: target-only alone and crowded, speculative crowded
show     the answer for a person      cli  the verb
"""
