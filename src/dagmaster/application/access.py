"""What a caller reaches: only its own jobs, or only some workflows. Its scopes say what it may do there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.application.api_keys import allows
from dagmaster.errors import KeyNarrowed, ScopeMissing
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from dagmaster.ports.api_keys import Caller
    from dagmaster.ports.job_filter import JobFilter

OWN_READS = frozenset({Reach.JOB, Reach.JOBS, Reach.REQUESTS})
"""What a caller with the scope submit reads without the scope read: its jobs."""


def admit(caller: Caller, scope: Scope, reach: Reach) -> Caller:
    """Return a caller as it may use a route; raise `ScopeMissing` or `KeyNarrowed`.

    One that lacks the scope read, and has submit, reads its own jobs: it is narrowed to these.
    """
    if caller.is_sandbox:
        if reach is not Reach.REQUESTS:
            raise KeyNarrowed(f"{caller.name} is a sandbox key: it reaches only its requests")
        caller = replace(caller, limits=replace(caller.limits, is_own=True))
    if not allows(caller.scopes, scope):
        if not (scope is Scope.READ and Scope.SUBMIT in caller.scopes and reach in OWN_READS):
            raise scope_missing(caller, scope)
        caller = replace(caller, limits=replace(caller.limits, is_own=True))
    if reach is Reach.INSTALLATION and caller.tenant != DEFAULT_TENANT:
        raise KeyNarrowed(
            f"{caller.name} belongs to the tenant {caller.tenant}, and this is about the installation"
        )
    if caller.limits.is_own and reach in (Reach.ALL, Reach.INSTALLATION):
        raise KeyNarrowed(f"{caller.name} reaches only jobs that it submitted, and this is about all jobs")
    return caller


def scope_missing(caller: Caller, scope: Scope) -> ScopeMissing:
    """Return the error about a scope that a caller does not have."""
    granted = ", ".join(sorted(caller.scopes))
    return ScopeMissing(f"this needs the scope `{scope}`; {caller.name} has: {granted or 'none'}")


def check_scope(caller: Caller | None, scope: Scope) -> None:
    """Raise `ScopeMissing` if a caller may not do something. None: a user of the database, who may."""
    if caller is not None and not allows(caller.scopes, scope):
        raise scope_missing(caller, scope)


def check_workflow(caller: Caller | None, workflow_id: str) -> None:
    """Raise `KeyNarrowed` if a caller may not submit a workflow."""
    allowed = () if caller is None else caller.limits.workflows
    if allowed and workflow_id not in allowed:
        raise KeyNarrowed(
            f"this key may not submit the workflow {workflow_id!r}; it may submit:"
            f" {format_list(sorted(allowed))}"
        )


def tenant_for(caller: Caller, tenant: str | None) -> str:
    """Return the tenant of a key that a caller makes; raise `KeyNarrowed` if it may not."""
    if tenant is None or tenant == caller.tenant:
        return caller.tenant
    if not caller.is_installation_admin:
        raise KeyNarrowed(f"{caller.name} belongs to the tenant {caller.tenant}, and makes no key of another")
    return tenant


def reaches(caller: Caller | None, submitted_by: str) -> bool:
    """Return whether a caller reaches a job of a submitter."""
    return caller is None or not caller.limits.is_own or submitted_by == caller.actor


def reaches_all(caller: Caller) -> bool:
    """Return whether a caller may see all jobs, and not only its own."""
    return allows(caller.scopes, Scope.READ) and not caller.limits.is_own


def narrow(caller: Caller | None, job_filter: JobFilter) -> JobFilter:
    """Return a filter of the jobs that a caller reaches; raise `KeyNarrowed` if it names others."""
    if caller is None or not caller.limits.is_own:
        return job_filter
    if job_filter.submitted_by not in (None, caller.actor):
        raise KeyNarrowed(f"{caller.name} reaches only jobs that it submitted: submitted_by={caller.actor}")
    return replace(job_filter, submitted_by=caller.actor)
