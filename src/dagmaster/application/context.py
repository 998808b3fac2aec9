"""What queries and commands work with: the stores of one database, wired by `bootstrap`."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.application.checks import LocalChecks
from dagmaster.orchestrator.graph_cache import GraphCache, OutlineCache
from dagmaster.ports.secret_vault import ClosedVault
from dagmaster.ports.tenants import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dagmaster.application.checks import Checks
    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.ports.api_keys import Caller
    from dagmaster.ports.audit_trail import ChangeOrigin
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.read_store import ReadStore
    from dagmaster.ports.reusable_results import ReusableResults
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The ports behind `application`. Every query and command takes one as its first argument."""

    read: ReadStore
    client: ClientStore
    results: ReusableResults
    blobs: OutputBlobs
    storage: Storage | None = None
    """Where the inputs of jobs are, if this process can look them up."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What expressions of new jobs may read as env.NAME."""
    origin: ChangeOrigin | None = None
    """Who makes changes. Those without an origin, as of a local run, have no entry in the audit trail."""
    caller: Caller | None = None
    """Whose key or token the request has, with what it reaches; None: a user of the database."""
    default_queue: str | None = None
    """The queue of tasks that name none, and whose handlers name none."""
    vault: SecretVault = field(default_factory=ClosedVault)
    """Encrypts and decrypts secret inputs."""
    callback_loopback: bool = False
    """Whether callbacks may go to this machine, and without TLS there."""
    limits: DefaultLimits | None = None
    """The operator's limits of tasks that name none, as explanations show them."""
    checks: Checks = field(default_factory=LocalChecks, compare=False, repr=False)
    """Where texts and inputs of callers are checked."""
    sample_result: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    """Makes up a result of a graph for a sandbox: see `simulation.sample_results`."""
    own_turns: Callable[[str], AbstractAsyncContextManager[None]] | None = None
    """Decides about one job in this process until it is left, for a job that nobody else would own."""
    _views: dict[str, Application] = field(init=False, compare=False, repr=False)
    """The views of tenants, of which there are few."""
    graphs: GraphCache = field(init=False, compare=False, repr=False)
    """Compiled graphs. A stored graph never changes, so each is compiled once."""
    outlines: OutlineCache = field(init=False, compare=False, repr=False)
    """Graphs without expressions, for all that only shows jobs or looks nodes up: to compile one takes
    longer."""
    explained_outlines: OutlineCache = field(init=False, compare=False, repr=False)
    """The same with the conditions of branches, which explanations quote."""

    def __post_init__(self) -> None:
        read, added = self.read, self.read.added_nodes
        object.__setattr__(self, "_views", {})
        object.__setattr__(self, "graphs", GraphCache(read, added=added))
        object.__setattr__(self, "outlines", OutlineCache(read, self.limits, added))
        object.__setattr__(
            self, "explained_outlines", OutlineCache(read, self.limits, added, with_conditions=True)
        )

    @property
    def tenant(self) -> str:
        """Return whose what is stored now is."""
        return DEFAULT_TENANT if self.caller is None else self.caller.tenant

    def for_tenant(self, tenant: str) -> Application:
        """Return the same application, with its caches, that sees and changes only what a tenant may."""
        view = self._views.get(tenant)
        if view is None:
            view = self._views[tenant] = copy.copy(self)
            object.__setattr__(view, "read", self.read.for_tenant(tenant))
            object.__setattr__(view, "client", self.client.for_tenant(tenant))
            object.__setattr__(view, "results", self.results.for_tenant(tenant))
            object.__setattr__(view, "origin", None)
            object.__setattr__(view, "caller", None)
        return view

    def on_behalf_of(self, origin: ChangeOrigin, caller: Caller | None = None) -> Application:
        """Return the same application, with its caches, for the requests of one caller.

        It sees what the caller's tenant sees. Without a caller, which has a connection, it sees the same.
        """
        same = copy.copy(self if caller is None else self.for_tenant(caller.sees))
        object.__setattr__(same, "origin", origin)
        object.__setattr__(same, "caller", caller)
        object.__setattr__(same, "checks", self.checks.on_behalf_of(origin.actor))
        return same
