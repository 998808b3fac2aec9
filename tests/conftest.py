"""How hypothesis runs: HYPOTHESIS_PROFILE is `ci` (the default), `dev` or `soak`. And which bug is planted, if any."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.planted import plant

plant()

# A slow machine is no finding: no deadline anywhere, and no complaint that data came slowly.
SLOW = [HealthCheck.too_slow]

# The same examples each time, so that a red build is red for everyone.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, suppress_health_check=SLOW)

# New examples each time, few of them; what failed is kept in .hypothesis and tried first.
settings.register_profile("dev", deadline=None, max_examples=30, print_blob=True, suppress_health_check=SLOW)

# Many new examples; tests/soak.py gives the seed.
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=150,
    print_blob=True,
    suppress_health_check=SLOW,
)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
