"""Settings of all tests."""

from hypothesis import settings

# A loaded machine is no failure. The same cases each time, so that a commit is green or is not;
# `--hypothesis-profile anew` draws others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("anew", deadline=None)
settings.load_profile("same")
