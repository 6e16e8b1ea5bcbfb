"""What all tests share."""

from hypothesis import settings

# A deadline measures the machine; budgets are measured as ratios, in bench/.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
