"""The settings of a session, which plans and commits of its statements depend on."""

from __future__ import annotations

from typing import Final

# The plan of a queue must not depend on statistics, which are outdated: the table was empty or full a moment
# ago. Without bitmap scans, the first rows of an order are read from an index, not found by sorting all rows.
_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
}


def session_settings(
    *, reads: bool, async_commit: bool, statement_timeout_seconds: float | None, is_pooled: bool
) -> dict[str, str]:
    """Return the settings of a connection that reads, or of one that writes."""
    # Queries of readers are planned as usual. Commits are flushed to disk whatever the server's default is.
    settings = {} if reads else dict(_PLANS)
    settings |= {"jit": "off", "synchronous_commit": "off" if async_commit else "on"}
    if statement_timeout_seconds is not None:
        # Queries are built for the filters that are set, and planned with their values.
        settings |= {"plan_cache_mode": "force_custom_plan"}
        settings |= {"statement_timeout": str(round(statement_timeout_seconds * 1000))}
        settings |= {"transaction_read_only" if is_pooled else "default_transaction_read_only": "on"}
    return settings
