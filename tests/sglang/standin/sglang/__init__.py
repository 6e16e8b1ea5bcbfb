"""What the adapter touches of SGLang 0.5.23, played by plain objects: see test_sglang_signatures.

The methods that are wrapped have the real parameters and are called by the same others, in the
same order; the models are scripts. Nothing here is SGLang's own code.
"""

__version__ = "0.5.23"
