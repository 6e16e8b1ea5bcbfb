"""The reference engine: speculative decoding small enough to read, correct enough to trust.

A leaf package: torch, numpy, safetensors, tokenizers and the standard library, nothing of ours.
"""
