"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, settings

# The first call of a torch operator is slow, so a deadline would measure the machine.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
# In continuous integration the same examples every time: a red run can be run again.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")
