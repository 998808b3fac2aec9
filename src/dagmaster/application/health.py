"""The health of the system as a server sees it: the state of each part, and since when."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from dagmaster.application.queries.fleet import describe_queues
from dagmaster.application.shared_calls import SharedCalls
from dagmaster.application.views.health import (
    HealthPartView,
    HealthState,
    HealthView,
    ReadinessView,
)
from dagmaster.errors import DagmasterError, DatabaseUnavailable, SecretsKeyMissing, SecretsKeyWrong
from dagmaster.host.system_load import SystemProbe
from dagmaster.ports.database_conditions import condition_of
from dagmaster.text_format import format_bytes, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from dagmaster.application.context import Application
    from dagmaster.ports.schema_admin import SchemaAdmin, SchemaState
    from dagmaster.ports.tenants import Isolation
    from dagmaster.records.fleet import (
        FleetRecord,
        OrchestratorRecord,
        ServiceRecord,
        StaleTasks,
        WorkerRecord,
    )
    from dagmaster.records.system import SystemRecord

READY_PARTS: Final = ("database", "schema", "tenants", "secrets_key", "orchestrators")
"""What a submitted job needs in order to be stored, also with secret inputs, and decided."""
ANSWER_SECONDS: Final = 3.0
"""How long the database may take to say what services and keys there are."""
READY_SECONDS: Final = 1.0
"""How long an answer about readiness is used: anyone may ask, and as often as they like."""
_OK, _BAD = HealthState.HEALTHY, HealthState.UNHEALTHY
MIN_DISK_BYTES: Final = 256 * 1024 * 1024
"""With less free space, large outputs and an embedded database soon cannot be written."""
MIN_MEMORY_SHARE: Final = 0.03
_READ_ONLY: Final = "read-only: this is a standby, or a server that is set to read-only"
_Part = tuple[str, HealthState, str]
_FLEET_PARTS: Final = ("tenants", "orchestrators", "workers", "queues", "stale_tasks", "secrets_key")


class HealthMonitor:
    """Checks every part when it is asked, and remembers since when each is in its state."""

    def __init__(self, app: Application, schema: SchemaAdmin, system: SystemProbe | None = None) -> None:
        self._app, self._schema = app, schema
        self._system = system or SystemProbe()
        self._readiness: tuple[float, ReadinessView] | None = None
        self._readiness_checks: SharedCalls[ReadinessView] = SharedCalls()
        self._database_seconds: float | None = None
        self._since: dict[str, tuple[HealthState, float]] = {}

    async def check(self) -> HealthView:
        self._database_seconds = None
        checked, load = await asyncio.gather(self._check_parts(self._check_fleet), self._system.measure())
        parts = self._record([*checked, check_system(load)])
        is_healthy = all(part.state is _OK for part in parts.values())
        return HealthView(
            status=_OK if is_healthy else _BAD,
            version=version("dagmaster"),
            database_seconds=self._database_seconds,
            system=load,
            parts=parts,
        )

    async def check_readiness(self) -> ReadinessView:
        if self._readiness is not None and time.monotonic() - self._readiness[0] <= READY_SECONDS:
            return self._readiness[1]
        return await self._readiness_checks.run("readiness", self._check_readiness)

    async def _check_readiness(self) -> ReadinessView:
        parts = self._record(await self._check_parts(self._count_orchestrators))
        failing = tuple(name for name in READY_PARTS if parts[name].state is not _OK)
        view = ReadinessView(is_ready=not failing, failing=failing)
        # The time after the check: the answer of a slow database is used as long as that of a quick one.
        self._readiness = (time.monotonic(), view)
        return view

    def _record(self, checked: Iterable[_Part]) -> dict[str, HealthPartView]:
        """Return the parts with the time since when each is in its state."""
        now = time.time()
        parts: dict[str, HealthPartView] = {}
        for name, state, detail in checked:
            if self._since.get(name, (None,))[0] is not state:
                self._since[name] = (state, now)
            parts[name] = HealthPartView(state=state, since=self._since[name][1], detail=detail)
        return parts

    async def _check_fleet(self) -> list[_Part]:
        record = await self._app.read.fleet()
        parts = [*_fleet_parts(describe_queues(record)), _check_stale_tasks(record.stale_tasks)]
        alive = [one for one in (*record.orchestrators, *record.workers) if one.is_alive]
        conditions = describe_conditions(alive)
        return [*parts, ("database", _BAD, conditions)] if conditions else parts

    async def _count_orchestrators(self) -> list[_Part]:
        """Check what readiness needs, by counts: the whole fleet has the tasks of every queue."""
        counts = await self._app.read.fleet_counts()
        parts = [_services_part("orchestrators", counts.orchestrators, counts.draining_orchestrators)]
        hindered = counts.hindered_orchestrators
        return [*parts, ("database", _BAD, f"{hindered} orchestrators cannot write")] if hindered else parts

    async def _check_secrets_key(self) -> _Part:
        """Check the key of secret inputs, if this installation has one."""
        try:
            await self._app.vault.check()
        except (SecretsKeyMissing, SecretsKeyWrong) as error:
            return "secrets_key", _BAD, str(error)
        return "secrets_key", _OK, "usable, or no secret input was ever stored"

    async def _check_parts(self, check_services: Callable[[], Awaitable[list[_Part]]]) -> list[_Part]:
        asked_at = time.monotonic()
        try:
            schema = await self._schema.state()
            self._database_seconds = round(time.monotonic() - asked_at, 6)
        except DagmasterError as error:
            return [("database", _BAD, error.code), *_unknown("schema", *_FLEET_PARTS)]
        database = ("database", _BAD, _READ_ONLY) if schema.is_read_only else ("database", _OK, "reachable")
        parts = [database, _check_schema(schema)]
        if not schema.is_usable:
            return [*parts, *_unknown(*_FLEET_PARTS)]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                isolation = _check_isolation(await self._schema.isolation())
                checked = [*parts, isolation, *await check_services(), await self._check_secrets_key()]
        except DagmasterError as error:
            return [("database", _BAD, error.code), parts[1], *_unknown(*_FLEET_PARTS)]
        except TimeoutError:
            return [("database", _BAD, DatabaseUnavailable.code), parts[1], *_unknown(*_FLEET_PARTS)]
        # What a service met is later in the list, and counts.
        return list({part[0]: part for part in checked}.values())


def check_system(load: SystemRecord | None) -> _Part:
    """Return the part of the machine: too little memory or disk is not healthy, a high load is."""
    if load is None:
        return "system", HealthState.UNKNOWN, "the disk of the data did not answer in time"
    facts = [
        f"load {load.load_average:.2f} on {format_count(load.cpu_count, 'processor')}",
        f"{format_bytes(load.memory_free_bytes)} of {format_bytes(load.memory_bytes)} of memory free",
    ]
    is_short = load.memory_free_bytes < load.memory_bytes * MIN_MEMORY_SHARE
    if load.disk_bytes is not None and load.disk_free_bytes is not None:
        is_short = is_short or load.disk_free_bytes < MIN_DISK_BYTES
        free, size = format_bytes(load.disk_free_bytes), format_bytes(load.disk_bytes)
        facts.append(f"{free} of {size} free on the disk of the data")
    return "system", _BAD if is_short else _OK, ", ".join(facts)


def _unknown(*names: str) -> Iterator[_Part]:
    for name in names:
        yield name, HealthState.UNKNOWN, "it cannot be read from the database"


def describe_conditions(services: Iterable[ServiceRecord]) -> str:
    """Return which conditions of the database live services met lately, and which services; empty: none."""
    met: dict[str, list[str]] = {}
    for one in services:
        condition = condition_of(one.counters)
        if condition is not None:
            met.setdefault(condition, []).append(one.place)
    return "; ".join(f"{condition} (as met by {format_list(places)})" for condition, places in met.items())


def _check_schema(schema: SchemaState) -> _Part:
    if schema.is_usable:
        return "schema", _OK, f"version {schema.version}"
    version, needed = schema.version or "none", schema.newest_version
    return "schema", _BAD, f"version {version}, this code needs {needed}: run `dagmaster migrate`"


def _check_isolation(isolation: Isolation) -> _Part:
    """Return the part of tenants: with one alone there is nobody to keep apart."""
    if isolation.is_enforced:
        return "tenants", _OK, "kept apart by the database"
    return "tenants", _OK if isolation.is_safe else _BAD, isolation.problem


def _services_part(name: str, claiming: int, draining: int) -> _Part:
    """Return the part of services: those that drain are alive, and decide or run nothing new."""
    note = f", {draining} of them draining" if draining else ""
    return name, _OK if claiming else _BAD, f"{claiming + draining} alive{note}"


def _count_services(name: str, services: Iterable[OrchestratorRecord | WorkerRecord]) -> _Part:
    alive = [one for one in services if one.is_alive]
    draining = sum(one.is_draining for one in alive)
    return _services_part(name, len(alive) - draining, draining)


def _fleet_parts(view: FleetRecord) -> Iterator[_Part]:
    yield _count_services("orchestrators", view.orchestrators)
    yield _count_services("workers", view.workers)
    workers = sum(one.is_alive and not one.is_draining for one in view.workers)
    unserved = sorted(queue.queue for queue in view.queues if queue.waiting and not queue.workers)
    if unserved:
        yield "queues", _BAD, f"tasks wait, and no live worker serves: {', '.join(unserved[:10])}"
    elif not workers:
        yield "queues", _BAD, "no live worker claims from any queue"
    else:
        yield "queues", _OK, "every queue with tasks is served"


def _check_stale_tasks(stale: StaleTasks) -> _Part:
    sentences = []
    if stale.of_dead_workers:
        tasks = format_count(stale.of_dead_workers, "task")
        sentences.append(f"{tasks} of dead workers not reclaimed: an orchestrator does that")
    if stale.overdue:
        sentences.append(
            f"{format_count(stale.overdue, 'task')} past the timeout, and the worker has not stopped it"
        )
    return (
        "stale_tasks",
        _BAD if sentences else _OK,
        "; ".join(sentences) or "every claimed task has a live worker",
    )
