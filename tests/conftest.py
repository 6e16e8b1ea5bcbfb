"""What all tests share: how generated examples are drawn.

No example is timed: how long one takes says something about the machine, not about the code; what
code costs is measured in bench/. The same examples come every time, so that a run that fails fails
again; `pytest --hypothesis-profile explore` looks for new ones.
"""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
UNTIMED = {"deadline": None, "suppress_health_check": SLOW}
settings.register_profile("repeatable", derandomize=True, **UNTIMED)
settings.register_profile("explore", print_blob=True, **UNTIMED)
settings.load_profile("repeatable")
