"""Hypothesis profiles: HYPOTHESIS_PROFILE is `ci`, the default, `quick`, `dev` or `soak`."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A shell starts background jobs with SIGINT ignored, and every child process inherits that: a test that sends SIGINT
# would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is not a failure: no deadlines, no health check for slow data.
SLOW = [HealthCheck.too_slow]

# The same examples in every run, so that a red build is red for everyone. `make soak` tries new ones.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60, suppress_health_check=SLOW)

# `make unit`: the first examples of `ci`.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=25, suppress_health_check=SLOW)

# New examples in every run, few of them; failed ones are kept in .hypothesis and tried first.
settings.register_profile("dev", deadline=None, max_examples=30, print_blob=True, suppress_health_check=SLOW)

# Many new examples; tests/soak.py passes the seed.
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=150,
    print_blob=True,
    suppress_health_check=SLOW,
)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
