"""Keys of secret inputs under running jobs: rotation, a rotation that is killed, a lost key, rows of earlier versions."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault
from dagmaster.application.secret_keys import SecretKeys, check_keys, rotate_keys
from dagmaster.errors import IdempotencyConflict, SecretsKeyMissing, SecretsKeyWrong
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.secret_keys import PostgresSecretKeyAdmin, PostgresSecretKeys
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dagmaster.application.views.secret_keys import SecretKeysView
    from dagmaster.ports.secret_vault import RegisteredKey
    from tests.integration.runtime.runtime_world import World

CANARY = "canary-77-hunter2"
FLOW = """
name: flow
inputs: {key: {type: string, secret: true, required: true}}
nodes:
  first: {handler: meet, params: {text: "first {{ inputs.key }}"}, retry: none, next: second}
  second: {handler: meet, params: {text: "second {{ inputs.key }}"}, retry: none, next: third}
  third: {handler: echo, allow_failure: true, params: {n: 1}}
"""


class Keys:
    """The registry of the database that the test gets."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def keys(self) -> Sequence[RegisteredKey]:
        return await PostgresSecretKeys(self._world.address).keys()

    async def allows_clear(self) -> bool:
        return await PostgresSecretKeys(self._world.address).allows_clear()

    async def register_first(self, key_id: str, verifier: str) -> None:
        await PostgresSecretKeys(self._world.address).register_first(key_id, verifier)


class Installation:
    """The keys of an installation. Services get theirs when they start, submits at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.old, self.new = new_key(), new_key()
        self.met: list[str] = []
        self.gate = Gate()
        world.vault = self.vault(self.old)

        @handler("meet", queue="q")
        async def meet(text: str) -> None:
            self.met.append(text)
            if text.startswith("first"):
                await self.gate.wait()

        world.handlers.append(meet)

    def vault(self, *keys: str) -> KeyVault:
        return KeyVault(KeySource(text=",".join(keys) or None), Keys(self.world))

    def use(self, *keys: str) -> None:
        """Give these keys to services that start from now on, and to submits."""
        self.world.vault = self.world.intake._vault = self.vault(*keys)

    async def check(self, *keys: str) -> SecretKeysView:
        async with self._admin(keys) as opened:
            return await check_keys(opened)

    async def rotate(self, *keys: str, is_lost: bool = False) -> SecretKeysView:
        async with self._admin(keys) as opened:
            return await rotate_keys(opened, is_lost=is_lost)

    @contextlib.asynccontextmanager
    async def _admin(self, keys: Sequence[str]) -> AsyncIterator[SecretKeys]:
        admin = PostgresSecretKeyAdmin(self.world.address)
        try:
            yield SecretKeys(KeyVault(KeySource(text=",".join(keys) or None), admin), admin)
        finally:
            await admin.aclose()

    async def begin(self) -> str:
        """Submit a job, and wait until its first task runs."""
        job = await self.world.submit(FLOW, {"key": CANARY})
        started = "SELECT started_at IS NOT NULL FROM dag_task_queue WHERE job_id = $1"
        await self.world.until(started, int(job))
        return job


@pytest.fixture
def installation(world: World) -> Installation:
    return Installation(world)


async def test_a_rotation_under_running_jobs_loses_nothing_and_the_old_key_can_be_removed(
    installation: Installation, world: World
):
    old, new = installation.old, installation.new
    # Every process gets both keys, and seals with the current one, the old one.
    installation.use(new, old)
    await world.start()
    await world.submit(FLOW, {"key": CANARY})
    job = await installation.begin()
    before = await installation.check(new, old)
    assert {key.is_current: key.jobs for key in before.keys} == {True: 2, False: 0}
    view = await installation.rotate(new, old)
    by_state = {key.is_current: key for key in view.keys}
    assert by_state[True].jobs == 2
    assert by_state[True].is_here
    assert (by_state[False].jobs, by_state[False].tasks) == (0, 0)
    # Again: it changes nothing, and the old key is no longer registered.
    assert [key.is_current for key in (await installation.rotate(new)).keys] == [True]
    # The orchestrator starts again without the old key; the worker and the tasks that it holds are next.
    await world.stop(world.orchestrators[0])
    installation.use(new)
    await world.orchestrator()
    installation.gate.open()
    assert (await world.finished(job)).status == "COMPLETED"
    assert f"second {CANARY}" in installation.met
    assert CANARY not in await world.everything()


async def test_a_rotation_that_is_killed_at_any_row_is_finished_by_the_next(
    installation: Installation, world: World, monkeypatch: pytest.MonkeyPatch
):
    old, new = installation.old, installation.new
    jobs = [await world.submit(FLOW, {"key": CANARY}) for _ in range(3)]
    rewrite, calls = PostgresSecretKeyAdmin.rewrite_job, 0

    class Killed(Exception):
        pass

    async def killed(self: Any, row: Any, text: str) -> None:
        nonlocal calls
        calls += 1
        if calls in (1, 3):
            raise Killed
        await rewrite(self, row, text)

    monkeypatch.setattr(PostgresSecretKeyAdmin, "rewrite_job", killed)
    for left in (3, 2):
        with pytest.raises(Killed):
            await installation.rotate(new, old)
        states = {key.is_current: key.jobs for key in (await installation.check(new, old)).keys}
        assert states == {True: 3 - left, False: left}
    view = await installation.rotate(new, old)
    assert {key.is_current: key.jobs for key in view.keys} == {True: 3, False: 0}
    installation.use(new)
    installation.gate.open()
    await world.start()
    assert [(await world.finished(job)).status for job in jobs] == ["COMPLETED"] * 3


async def test_with_a_lost_key_jobs_that_need_it_fail_that_node_with_the_reason_and_others_run(
    installation: Installation, world: World
):
    new = installation.new
    lost = await world.submit(FLOW, {"key": CANARY})
    other = await world.submit("{name: other, nodes: {a: {handler: echo, params: {n: 1}}}}")
    for keys, error in (((), SecretsKeyMissing), ((new,), SecretsKeyWrong)):
        with pytest.raises(error):
            await installation.vault(*keys).check()
    with pytest.raises(SecretsKeyWrong):
        await installation.rotate(new)
    view = await installation.rotate(new, is_lost=True)
    assert {key.is_current: (key.is_here, key.jobs) for key in view.keys} == {
        True: (True, 0),
        False: (False, 1),
    }
    installation.use(new)
    installation.gate.open()
    await world.start()
    report = await world.finished(lost)
    assert report.status == "FAILED"
    error = report.nodes["first"]["error"]
    assert error["kind"] == "secret_unreadable"
    assert "which this process does not have" in error["message"]
    assert "encrypted with key" in (await world.why(lost)).reason_for("first").sentence
    assert (await world.finished(other)).status == "COMPLETED"
    again = await world.run(FLOW, {"key": CANARY})
    assert again.status == "COMPLETED"


async def test_a_task_that_uses_no_secret_runs_although_the_key_of_its_job_is_lost(
    installation: Installation, world: World
):
    text = """{name: n, inputs: {key: {type: string, secret: true, required: true}}, nodes: {
        a: {handler: echo, params: {n: 1}, next: b}, b: {handler: echo, params: {x: "{{ inputs.key }}"}, retry: none}}}"""
    job = await world.submit(text, {"key": CANARY})
    await installation.rotate(installation.new, is_lost=True)
    installation.use(installation.new)
    await world.start()
    report = await world.finished(job)
    assert (report.nodes["a"]["status"], report.nodes["b"]["status"]) == ("COMPLETED", "FAILED")


async def test_a_job_of_an_earlier_version_runs_and_a_rotation_encrypts_its_row(
    installation: Installation, world: World
):
    jobs = [await world.submit(FLOW, {"key": CANARY}) for _ in range(2)]
    await world.rows("UPDATE dag_jobs SET inputs = $1::json", json.dumps({"key": CANARY}))
    await world.start()
    await world.until("SELECT count(*) = 2 FROM dag_task_queue WHERE started_at IS NOT NULL")
    # Tasks get it sealed: only the rows of the jobs have the value.
    assert CANARY not in await world.everything("dag_jobs.inputs")
    installation.gate.open()
    for job in jobs:
        assert (await world.finished(job)).status == "COMPLETED"
    assert (await installation.check(installation.old)).clear_jobs == 2
    view = await installation.rotate(installation.old)
    assert (view.clear_jobs, view.keys[0].jobs) == (0, 2)
    assert CANARY not in await world.everything()


async def test_without_a_key_a_job_of_an_earlier_version_gets_tasks_that_its_workers_understand(
    installation: Installation, world: World
):
    job = await world.submit(FLOW, {"key": CANARY})
    await world.rows("UPDATE dag_jobs SET inputs = $1::json", json.dumps({"key": CANARY}))
    installation.use()
    await world.start()
    await world.until("SELECT started_at IS NOT NULL FROM dag_task_queue")
    ((params, secrets),) = await world.rows("SELECT params, secrets FROM dag_task_queue")
    assert json.loads(params) == {"text": f"first {CANARY}"}
    assert json.loads(secrets) == {"places": [], "hide": [CANARY]}
    installation.gate.open()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_values_that_are_swapped_between_rows_are_not_read(installation: Installation, world: World):
    first, second = [await world.submit(FLOW, {"key": f"{CANARY}-{n}"}) for n in range(2)]
    await world.rows(
        "UPDATE dag_jobs SET inputs = (SELECT inputs FROM dag_jobs WHERE id = $1) WHERE id = $2",
        int(first),
        int(second),
    )
    installation.gate.open()
    await world.start()
    assert (await world.finished(first)).status == "COMPLETED"
    report = await world.finished(second)
    assert report.nodes["first"]["error"]["kind"] == "secret_unreadable"
    assert f"first {CANARY}-1" not in installation.met


async def test_the_same_request_with_a_secret_is_one_job_and_another_value_is_a_conflict(
    installation: Installation, world: World
):
    first = await world.accept(FLOW, {"key": "1234"}, idempotency_key="k")
    (digest,) = [row[0] for row in await world.rows("SELECT body_hash FROM dag_jobs")]
    same = await world.accept(FLOW, {"key": "1234"}, idempotency_key="k")
    assert (same.job_id, same.is_new) == (first.job_id, False)
    with pytest.raises(IdempotencyConflict):
        await world.accept(FLOW, {"key": "1235"}, idempotency_key="k")
    # After a rotation it is still the same request, as long as the process has the old key.
    await installation.rotate(installation.new, installation.old)
    installation.use(installation.new, installation.old)
    assert (await world.accept(FLOW, {"key": "1234"}, idempotency_key="k")).job_id == first.job_id
    with pytest.raises(IdempotencyConflict):
        await world.accept(FLOW, {"key": "1235"}, idempotency_key="k")
    # It cannot be computed without the key.
    installation.use(installation.new)
    await world.rows("UPDATE dag_jobs SET idempotency_key = 'other'")
    await world.accept(FLOW, {"key": "1234"}, idempotency_key="k")
    assert await world.value("SELECT count(DISTINCT body_hash) FROM dag_jobs") == 2
    assert digest not in [
        row[0] for row in await world.rows("SELECT body_hash FROM dag_jobs WHERE id <> $1", int(first.job_id))
    ]


async def test_a_resumed_job_reuses_results_that_depend_on_the_same_secret_and_no_other(
    installation: Installation, world: World
):
    text = """{name: n, inputs: {key: {type: string, secret: true, required: true}, n: {type: integer, default: 1}}, nodes: {
        a: {handler: meet, params: {text: "{{ inputs.key }}"}, next: b}, b: {handler: echo, params: {n: "{{ inputs.n }}"}}}}"""
    await world.start()
    first = await world.submit(text, {"key": CANARY})
    await world.finished(first)
    same = await world.submit(text, {"key": CANARY, "n": 2}, resumed_from=first)
    await world.finished(same)
    assert installation.met == [CANARY]
    await world.finished(await world.submit(text, {"key": "another"}, resumed_from=first))
    assert installation.met == [CANARY, "another"]
    assert CANARY not in await world.everything()


PARENT = """
name: parent
inputs: {key: {type: string, secret: true, required: true}}
nodes: {start: {type: workflow, workflow_id: child, inputs: {key: "{{ inputs.key }}"}}}
"""
CHILD = """
workflow_id: child
name: child
inputs: {key: {type: string, secret: true, required: true}}
nodes: {use: {handler: meet, params: {text: "child {{ inputs.key }}"}}}
"""


async def test_an_upgraded_installation_runs_jobs_with_secret_inputs_before_it_has_a_key(
    installation: Installation, world: World
):
    await world.rows("INSERT INTO dag_secret_keys (key_id, verifier, is_current) VALUES ('clear', '', false)")
    installation.use()
    await world.start()
    job = await world.submit(PARENT, {"key": CANARY}, brings=[CHILD])
    assert (await world.finished(job)).status == "COMPLETED"
    assert installation.met == [f"child {CANARY}"]
    before = await world.accept(PARENT, {"key": CANARY}, idempotency_key="k", brings=[CHILD])
    await world.finished(before.job_id)
    # The same request after the first key: it was stored in clear.
    installation.use(installation.new)
    after = await world.accept(PARENT, {"key": CANARY}, idempotency_key="k", brings=[CHILD])
    assert (after.job_id, after.is_new) == (before.job_id, False)
    view = await installation.rotate(installation.new)
    assert (view.clear_jobs, [key.is_current for key in view.keys]) == (0, [True])
    assert CANARY not in await world.everything()
