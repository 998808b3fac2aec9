"""Settings that are the operator's defaults: each changes what runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rasterio

from dagmaster import Registry, RetryPolicy, create_task, task, workflow
from dagmaster.authoring.added_nodes import read_batch
from dagmaster.authoring.compiler.compile import compile_definition, compile_document, compile_text
from dagmaster.authoring.graph_outline import outline_graph
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.authoring.source_document import document_from_data
from dagmaster.bootstrap import default_limits, find_handlers, make_orchestrator, make_worker
from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.engine.graph import TaskSpec
from dagmaster.errors import SettingsInvalid, WorkflowInvalid
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.settings import PARAM_DEFAULTS, Settings, load_settings
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.testing.services import local_services
from tests.unit.geo.raster.raster_context import HandlerHarness

CONFIG = DatabaseConfig(dsn="postgresql://nowhere/none")
FLOW = "{name: flow, nodes: {a: {handler: echo, queue: q, params: {x: 1}}, b: {handler: echo, queue: q, timeout_seconds: 9}}}"


# ── Timing ──


def the_timing(**settings: Any) -> Any:
    return make_orchestrator(CONFIG, MemoryDatabase().blobs, Settings(**settings)).timing


def test_heartbeat_and_scan_are_a_third_of_the_lease_unless_set():
    default = the_timing(orchestrator_lease_seconds=30)
    assert (default.heartbeat_seconds, default.scan_seconds, default.max_backoff_seconds) == (10.0, 10.0, 5.0)
    timing = the_timing(
        orchestrator_heartbeat_seconds=2, orchestrator_scan_seconds=9, reconnect_max_seconds=7
    )
    assert (timing.heartbeat_seconds, timing.scan_seconds, timing.max_backoff_seconds) == (2.0, 9.0, 7.0)


@pytest.mark.parametrize(("settings", "seconds"), [({}, 2.0), ({"worker_heartbeat_seconds": 1.5}, 1.5)])
def test_a_worker_renews_its_lease_as_often_as_it_is_set(tmp_path, settings, seconds):
    worker = make_worker(CONFIG, MemoryDatabase().blobs, Settings(scratch_dir=tmp_path, **settings))
    assert worker.options.heartbeat_seconds == seconds


# ── Routing ──


def test_a_task_whose_node_and_handler_name_no_queue_gets_the_default_one(tmp_path):
    file = tmp_path / "tasks.py"
    file.write_text("from dagmaster import handler\n@handler('own')\ndef own() -> dict: return {}\n")
    registry = find_handlers((str(file),), Settings(default_queue="light"))
    graph = compile_text(
        "{name: f, nodes: {a: {handler: own}, b: {handler: own, queue: x}}}", handlers=registry
    ).graph
    assert {node_id: spec.queue for node_id, spec in graph.specs.items() if isinstance(spec, TaskSpec)} == {
        "a": "light",
        "b": "x",
    }


@pytest.mark.parametrize(
    ("settings", "queue"),
    [
        ({"python_queue": "py", "default_queue": "light"}, "py"),
        ({"default_queue": "light"}, "light"),
        ({}, None),
    ],
)
def test_a_task_of_python_code_that_names_no_queue_gets_the_python_queue(settings, queue):
    registry = find_handlers(settings=Settings(**settings))

    @task
    def one() -> int:
        return 1

    @workflow
    def flow():
        one()
        one.with_options(name="other", queue="x")()

    registry = flow.handlers().overlay(registry)
    if queue is None:
        with pytest.raises(WorkflowInvalid, match="or set DAGMASTER_PYTHON_QUEUE"):
            flow.compile(registry)
        return
    graph = flow.compile(registry).graph
    assert {node_id: spec.queue for node_id, spec in graph.specs.items() if isinstance(spec, TaskSpec)} == {
        "one": queue,
        "other": "x",
    }
    # A workflow file is no Python code.
    with pytest.raises(WorkflowInvalid, match="or set DAGMASTER_DEFAULT_QUEUE"):
        compile_text(
            flow.to_yaml(),
            handlers=flow.handlers().overlay(find_handlers(settings=Settings(python_queue="p"))),
        )


# ── Timeouts ──


def test_the_operator_limits_tasks_and_jobs_that_have_no_limit_of_their_own():
    definition = compile_text(FLOW).graph.definition
    graph = compile_definition(
        definition, default_limits(Settings(task_timeout_seconds=60, job_timeout_seconds=600))
    )
    specs: dict[str, Any] = dict(graph.specs)
    assert (specs["a"].timeout_seconds, specs["b"].timeout_seconds, graph.deadline_seconds) == (
        60.0,
        9.0,
        600.0,
    )
    own = compile_definition(
        {**definition, "deadline_seconds": 5.0}, default_limits(Settings(job_timeout_seconds=600))
    )
    assert own.deadline_seconds == 5.0


def test_a_published_version_does_not_change_with_the_operators_limits():
    graph = compile_text(FLOW).graph
    other = compile_definition(graph.definition, default_limits(Settings(task_timeout_seconds=60)))
    assert (other.content_hash, other.definition) == (graph.content_hash, graph.definition)


# ── Retries ──


def max_attempts(graph: Any) -> dict[str, int]:
    return {name: spec.retry.max_attempts for name, spec in graph.specs.items()}


def test_the_operator_sets_the_retries_of_tasks_that_name_none():
    retries: dict[str, Any] = {
        "a": {},
        "b": {"retry": {"max_attempts": 2}},
        "c": {"retry": {"backoff": "fixed"}},
        "d": {"retry": "none"},
    }
    nodes: dict[str, Any] = {name: {"handler": "h", "queue": "q", **keys} for name, keys in retries.items()}

    @handler("own", queue="q", retry=RetryPolicy(max_attempts=7))
    def own() -> None:
        """Do nothing."""

    nodes["e"] = {"handler": "own"}
    graph = compile_document(
        document_from_data({"name": "flow", "nodes": nodes}),
        handlers=Registry([own]),
        allow_missing_handlers=True,
    ).graph
    assert max_attempts(graph) == {"a": 3, "b": 2, "c": 3, "d": 1, "e": 7}
    for retries_of_tasks, attempts in ((None, 3), (0, 1), (9, 10)):
        limits = default_limits(Settings(task_max_retries=retries_of_tasks))
        other = compile_definition(graph.definition, limits)
        assert max_attempts(other) == max_attempts(graph) | {"a": attempts}
        assert other.content_hash == graph.content_hash
        assert max_attempts(outline_graph(graph.definition, graph.content_hash, limits)) == max_attempts(
            other
        )


def test_the_operator_sets_the_retries_of_tasks_in_code_that_name_none():
    part = collect([create_task("m.f", queue="q"), create_task("m.g", queue="q", retry=4)]).part
    batch = read_batch(part.to_rows(1), limits=default_limits(Settings(task_max_retries=1)))
    assert [spec.retry.max_attempts for spec in batch.specs if isinstance(spec, TaskSpec)] == [2, 4]


@pytest.mark.parametrize("name", ["DAGMASTER_TASK_MAX_RETRIES", "WORKER_MAX_RETRIES"])
@pytest.mark.parametrize("value", ["-1", "many", "1000", "2.5"])
def test_a_wrong_number_of_retries_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid, match=name):
        load_settings(services=True)


# ── Params of handlers ──


def test_defaults_of_params_reach_the_services_of_handlers(tmp_path):
    settings = Settings(raster_compression="ZSTD", vector_chunk_rows=5, scratch_dir=tmp_path)
    config = json.loads(json.dumps(handler_services_config(settings, tmp_path).config))
    assert config["param_defaults"] == {"raster_compression": "ZSTD", "vector_chunk_rows": 5}


def test_every_default_of_a_param_is_a_setting_and_the_other_way_round():
    named = {
        setting
        for spec in find_handlers(settings=Settings())
        for _, setting in spec.signature.operator_params
    }
    assert named == set(PARAM_DEFAULTS)


@pytest.mark.parametrize(
    ("param", "setting"),
    [
        ("compression", "raster_compression"),
        ("overview_resampling", "raster_overview_resampling"),
    ],
)
def test_a_setting_allows_what_its_param_allows(param, setting):
    schema = find_handlers(settings=Settings()).get("raster.create_cog").params_schema() or {}
    allowed = Settings.model_json_schema()["properties"][setting]["anyOf"][0]["enum"]
    assert allowed == schema["properties"][param]["enum"]


def test_a_cog_is_written_as_the_operator_set_and_a_param_wins(tmp_path):
    defaults = {
        "raster_compression": "ZSTD",
        "raster_tile_size": 128,
        "raster_overview_resampling": "nearest",
    }
    harness = HandlerHarness(tmp_path, param_defaults=defaults)
    harness.bronze("a.tif", np.arange(300 * 300, dtype="uint16").reshape(300, 300))
    result = harness.run("raster.create_cog", href="a.tif")
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert (cog.profile["compress"], cog.profile["blockxsize"]) == ("zstd", 128)
        assert cog.tags(ns="IMAGE_STRUCTURE").get("OVERVIEW_RESAMPLING", "NEAREST") == "NEAREST"
    own = harness.run("raster.create_cog", href="a.tif", compression="LZW", tile_size=256)
    with rasterio.open(harness.path(own.cog_url)) as cog:
        assert (cog.profile["compress"], cog.profile["blockxsize"]) == ("lzw", 256)
    assert own.cog_url != result.cog_url


def test_features_are_prepared_as_the_operator_set(tmp_path):
    points = "".join(f"{number},{number}\n" for number in range(10))
    services = local_services(
        tmp_path,
        param_defaults={"vector_target_crs": "EPSG:3857", "vector_chunk_rows": 4, "vector_chunk_mb": 1.0},
    )
    (tmp_path / "bronze" / "points.csv").write_text(f"lon,lat\n{points}")
    spec = find_handlers(settings=Settings()).get("vector.prepare")
    ctx = HandlerContext(
        params={"href": "points.csv", "source_crs": "EPSG:4326"},
        services=services,
        handler=spec.name,
        handler_version="1",
    )
    prepared = spec.call(ctx)
    assert (prepared.crs, len(prepared.chunks)) == ("EPSG:3857", 3)


def test_a_handler_of_a_user_may_also_name_a_setting():
    from pydantic import BaseModel, Field

    class Params(BaseModel):
        compression: str = Field(default="none", json_schema_extra={"setting": "raster_compression"})

    @handler("own", queue="q")
    def own(params: Params) -> dict[str, str]:
        return {"compression": params.compression}

    from dagmaster.sdk.handler_registry import spec_of

    spec = spec_of(own)
    assert spec.call(HandlerContext(params={})) == {"compression": "none"}
    assert spec.signature.operator_params == (("compression", "raster_compression"),)
