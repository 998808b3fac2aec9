"""What a handler gets with its context is the same on the loop, on a thread, in a process and as a generator."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import BlobsUnavailable
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.task_messages import Outcome, TaskMessage
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.testing import local_services, run_workflow
from dagmaster.worker.executor import Executor
from dagmaster.worker.lazy_services import LazyServices, ServicesConfig
from dagmaster.worker.process_pool import HandlerProcesses
from dagmaster.worker.task_log_capture import capture
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.process_fixtures import HANDLERS, Watched, output, registry
from tests.unit.worker.process_handlers import DESCRIBED

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.storage import BlobInfo

MODES = [function.__name__ for function in DESCRIBED]
TOKEN = (3 << 41) + 27_000_000_000


def execute(folder: Path, messages: list[TaskMessage]) -> tuple[list[Outcome], Watched]:
    """Execute tasks one after the other with services in a folder; capture what they log."""
    services = ServicesConfig(
        "dagmaster.bootstrap.services_config:open_services", local_services(folder)._config
    )

    async def main() -> tuple[list[Outcome], Watched]:
        watched = Watched()
        executor = Executor(
            registry(),
            processes=HandlerProcesses((HANDLERS,), limit=1, services=services),
            services=LazyServices(services),
            reports=watched,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return [await executor.execute(message) for message in messages], watched
        finally:
            await executor.close()

    with capture():
        return asyncio.run(main())


def a_message(name: str, checkpoint: Checkpoint | None = None) -> TaskMessage:
    message = TaskMessage(name, "7", "tiles__4", name, attempt=3, checkpoint=checkpoint, fencing_token=TOKEN)
    # Other programs may carry it.
    return TaskMessage.from_json(json.loads(json.dumps(message.to_json())))


@pytest.mark.process
def test_every_mode_has_the_same_idempotency_key_and_fencing_token(tmp_path: Path):
    outcomes, _ = execute(tmp_path, [a_message(name) for name in MODES])
    assert [output(outcome) for outcome in outcomes] == [
        {"key": "7:tiles__4", "token": TOKEN, "resumed": None}
    ] * 6


@pytest.mark.process
def test_every_mode_resumes_from_the_newest_checkpoint_whose_artifacts_exist(tmp_path: Path):
    blobs = local_services(tmp_path).blobs
    uri = blobs.in_zone("silver", "part.bin")
    info, own = blobs.write(uri, b"one"), tmp_path.parent / f"{tmp_path.name}-own"
    own.write_bytes(b"mine")
    saved = Checkpoint(
        "half", {"n": 3}, [info, str(uri), own],
        earlier=(Checkpoint("third", {"n": 2}, [str(uri)]), Checkpoint("start", {"n": 1}, [own])),
    )  # fmt: skip
    outcomes, watched = execute(tmp_path, [a_message(name, saved) for name in MODES])
    assert [output(outcome)["resumed"] for outcome in outcomes] == [{"n": 3}] * 6
    assert watched.text(MODES[0]) == ""

    blobs.delete(uri)
    outcomes, watched = execute(tmp_path, [a_message(name, saved) for name in MODES])
    assert [output(outcome)["resumed"] for outcome in outcomes] == [{"n": 1}] * 6
    for name in MODES:
        for phase in ("half", "third"):
            assert (
                f"the checkpoint '{phase}' is discarded: the artifact {uri} does not exist"
                in watched.text(name)
            )
        assert "the task resumes from the earlier checkpoint 'start'" in watched.text(name)


def test_the_key_stays_and_the_token_grows_with_each_attempt_of_each_child():
    seen: dict[str, list[tuple[str, int]]] = {}

    @handler("it", retry=3)
    async def it(ctx: HandlerContext) -> dict[str, Any]:
        seen.setdefault(ctx.node_id, []).append((ctx.idempotency_key, ctx.fencing_token))
        if ctx.attempt < 3:
            raise RuntimeError("again")
        return {}

    flow = "{name: n, nodes: {f: {type: fan_out, source: [1, 2], task: {handler: it, queue: q}}}}"
    report = run_workflow(flow, handlers=[it])
    assert report.status == "COMPLETED"
    assert sorted(seen) == ["f__0", "f__1"]
    for node, executions in seen.items():
        assert {key for key, _ in executions} == {f"{report.job_id}:{node}"}
        tokens = [token for _, token in executions]
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 3


# ── What counts as gone ──


def resumed(folder: Path, artifacts: list[Any], *, services: Any = None) -> Any:
    """Return the checkpoint data that a second attempt gets whose first one saved these artifacts and failed."""
    seen: list[Any] = []

    @handler("it", retry=2)
    def it(ctx: HandlerContext) -> dict[str, Any]:
        seen.append(ctx.checkpoint_data)
        if ctx.attempt == 1:
            ctx.checkpoint("half", {"n": 1}, artifacts)
            raise RuntimeError("the worker lost its network")
        return {}

    report = run_workflow("{name: n, nodes: {a: {handler: it, queue: q}}}", handlers=[it], services=services)
    assert (report.status, seen[0], len(seen)) == ("COMPLETED", None, 2)
    return seen[1]


@pytest.fixture
def part(tmp_path: Path) -> BlobInfo:
    """Provide a published blob in the silver zone."""
    file = tmp_path / "file"
    file.write_bytes(b"content")
    services = local_services(tmp_path)
    return services.blobs.publish(file, services.blobs.in_zone("silver", "part.bin"))


def test_an_artifact_is_a_uri_a_name_a_path_or_a_folder(tmp_path: Path, part: BlobInfo):
    services, scratch = local_services(tmp_path), tmp_path.parent / f"{tmp_path.name}-elsewhere"
    scratch.write_bytes(b"")
    folder = services.blobs.in_zone("silver")
    for artifact in (part, part.uri, str(part.uri), tmp_path / "file", str(scratch), scratch, folder):
        assert resumed(tmp_path, [artifact], services=services) == {"n": 1}, artifact
    for artifact in (
        f"{part.uri}.gone",
        services.blobs.in_zone("gold"),
        "gone.bin",
        tmp_path / "gone",
        f"{scratch}.gone",
        "memory://none/a",
    ):
        assert resumed(tmp_path, [part, artifact], services=services) is None, artifact


def test_an_artifact_that_was_replaced_since_is_noticed_where_its_version_is_known(
    tmp_path: Path, part: BlobInfo
):
    services = local_services(tmp_path)
    assert resumed(tmp_path, [part], services=services) == {"n": 1}
    services.blobs.write(part.uri, b"changed")
    assert services.blobs.find(part.uri).size == part.size  # type: ignore[union-attr]
    assert resumed(tmp_path, [part], services=services) is None
    assert resumed(tmp_path, [part.uri], services=services) == {"n": 1}


def test_three_attempts_fall_back_to_what_is_left_of_each_phase(tmp_path: Path):
    """Each attempt runs the phases whose artifacts are gone, and no other; their checkpoints are those of later ones."""
    ran: list[tuple[int, int]] = []
    parts = [tmp_path / f"part{number}" for number in range(4)]

    @handler("it", retry=3)
    def it(ctx: HandlerContext) -> dict[str, Any]:
        for phase in range((ctx.checkpoint_data or {}).get("next", 0), 4):
            ran.append((ctx.attempt, phase))
            parts[phase].write_bytes(b"made")
            ctx.checkpoint(f"phase {phase}", {"next": phase + 1}, parts[: phase + 1])
        if ctx.attempt < 3:
            parts[(3, 1)[ctx.attempt - 1]].unlink()
            raise RuntimeError("the worker lost its network")
        return {}

    report = run_workflow("{name: n, nodes: {a: {handler: it, queue: q}}}", handlers=[it])
    assert report.status == "COMPLETED"
    assert ran == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 3), (3, 1), (3, 2), (3, 3)]


def test_without_services_only_local_files_are_checked(tmp_path: Path):
    assert resumed(tmp_path, ["s3://bucket/part.bin", str(tmp_path)]) == {"n": 1}
    assert resumed(tmp_path, [f"file://{tmp_path}/gone"]) is None


def test_a_storage_that_does_not_answer_fails_the_attempt_and_keeps_the_checkpoint(
    tmp_path: Path, part: BlobInfo
):
    services, seen = local_services(tmp_path), []
    answers = iter([BlobsUnavailable("no route to the storage"), part])

    class Blobs:
        def resolve(self, _text: str) -> Any:
            return part.uri

        def find(self, _uri: Any) -> Any:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    services.__dict__["blobs"] = Blobs()

    @handler("it", retry=3)
    async def it(ctx: HandlerContext) -> dict[str, Any]:
        seen.append((ctx.attempt, ctx.checkpoint_data))
        if ctx.attempt == 1:
            ctx.checkpoint("half", {"n": 1}, [part])
            raise RuntimeError("the worker lost its network")
        return {}

    report = run_workflow("{name: n, nodes: {a: {handler: it, queue: q}}}", handlers=[it], services=services)
    assert (report.status, seen) == ("COMPLETED", [(1, None), (3, {"n": 1})])


@pytest.mark.parametrize("artifacts", ["s3://bucket/a", [3], [None]])
def test_what_is_no_artifact_is_rejected_when_the_checkpoint_is_saved(artifacts: Any):
    @handler("it")
    async def it(ctx: HandlerContext) -> None:
        ctx.checkpoint("half", {}, artifacts)

    report = run_workflow("{name: n, nodes: {a: {handler: it, queue: q}}}", handlers=[it])
    assert report.nodes["a"]["error"]["kind"] == "invalid_checkpoint"
