"""Examples are not timed: how long one takes says something about the machine, not the code."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
