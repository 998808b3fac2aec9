"""The calls of `dagmaster` about graphs, jobs and workers, without `await`: for scripts and notebooks.

from dagmaster.blocking import OrchContext, create_job

with OrchContext() as context:
    job = create_job("nightly", [extract, load])
"""

from __future__ import annotations

from dagmaster.session.blocking import *  # noqa: F403 - its names are listed there
