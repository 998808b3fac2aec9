"""Compares large outputs with the rows of their jobs: what was written before commits were lost.

After a failover to a standby that had not received the last commits, or after a restore, the database is
older than the outputs of workers. Tasks of these attempts run again; what they did elsewhere is done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.database_admin import MAX_VIOLATIONS
from dagmaster.application.views.audit import OutputAuditView
from dagmaster.ports.output_names import OutputName, parse_output_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dagmaster.application.database_admin import DatabaseAdmin

OUTPUTS_AT_ONCE: Final = 1_000


async def audit_outputs(
    admin: DatabaseAdmin, *, on_progress: Callable[[int, int | None], None] | None = None
) -> OutputAuditView:
    """Compare all large outputs with the rows of their jobs; call `on_progress` with how many so far.

    What a service writes meanwhile is newer for a moment: what was found is compared again at the end.
    """
    compared, newer = 0, list[OutputName]()
    async for batch in _batches(admin):
        compared += len(batch)
        if len(newer) < MAX_VIOLATIONS:
            newer += await _newer(admin, batch)
        if on_progress is not None:
            on_progress(compared, None)
    violations = await admin.auditor.newer_outputs(newer[:MAX_VIOLATIONS]) if newer else ()
    return OutputAuditView(is_valid=not violations, outputs_total=compared, violations=tuple(violations))


async def _newer(admin: DatabaseAdmin, batch: list[OutputName]) -> list[OutputName]:
    places = {(violation.job_id, violation.node_id) for violation in await admin.auditor.newer_outputs(batch)}
    return [output for output in batch if (output.job_id, output.path) in places]


async def _batches(admin: DatabaseAdmin) -> AsyncIterator[list[OutputName]]:
    batch: list[OutputName] = []
    async for name in admin.outputs.names():
        if (output := parse_output_name(name)) is not None:
            batch.append(output)
        if len(batch) == OUTPUTS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
