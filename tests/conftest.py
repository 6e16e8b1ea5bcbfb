"""What all tests share: how generated examples are drawn.

No example is timed: how long one takes says something about the machine, not about the code; what
code costs is measured in bench/. The same examples come every time, so that a run that fails fails
again, alone or with others; `pytest --hypothesis-profile explore` looks for new ones.
"""

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
UNTIMED = {"deadline": None, "suppress_health_check": SLOW}
settings.register_profile("repeatable", derandomize=True, **UNTIMED)
settings.register_profile("explore", print_blob=True, **UNTIMED)
settings.load_profile("repeatable")

# Hypothesis also draws constants that it finds in the modules loaded so far, so examples would
# depend on the tests that ran before in the same process. No setting turns that off.
_constants_of_loaded_modules = providers._get_local_constants


def _constants():
    explore = settings.get_current_profile_name() == "explore"
    return _constants_of_loaded_modules() if explore else providers.Constants()


providers._get_local_constants = _constants
