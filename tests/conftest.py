"""Shared by all tests."""

import hypothesis

# Timings on a shared machine are not a property of the code.
hypothesis.settings.register_profile(
    "privypurse", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("privypurse")
