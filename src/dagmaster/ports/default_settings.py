"""Defaults of settings that are also needed without their model, which imports pydantic.

Each stands here alone.
"""

from __future__ import annotations

from typing import Final

POLL_SECONDS: Final = 1.0
ORCHESTRATOR_LEASE_SECONDS: Final = 15.0
WORKER_LEASE_SECONDS: Final = 6.0
RECONNECT_MAX_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 30.0
BLOCKED_SECONDS: Final = 60.0
READ_TIMEOUT_SECONDS: Final = 30.0
CONCURRENCY: Final = 32
OIDC_LEEWAY_SECONDS: Final = 30.0
OIDC_NAME_CLAIM: Final = "sub"
OIDC_SCOPES_CLAIM: Final = "scope"
RASTER_MAX_PIXELS: Final = 5_000_000_000
RASTER_MAX_FILE_MB: Final = 1_000_000
