"""Counters and gauges of engines and devices, as their endpoints give them."""
