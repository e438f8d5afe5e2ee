"""Settings of all tests."""

from hypothesis import settings

# a loaded machine is no failure
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
