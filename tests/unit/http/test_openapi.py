"""The OpenAPI document is valid, its examples fit its schemas, and a generator makes a client of it."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator

from dagmaster.http.app import create_app
from dagmaster.http.openapi import OPERATION_IDS, operation_id
from dagmaster.http.operation_errors import ERRORS_OF_PARTS
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import finished, memory_application
from tests.unit.http.api_client import memory_services, opened_api

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = json.loads(files("dagmaster.http").joinpath("examples.json").read_text(encoding="utf-8"))


@cache
def document() -> dict[str, Any]:
    return create_app(memory_services(memory_application())).openapi()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.slow
def test_the_document_is_valid_and_every_reference_resolves():
    OpenAPIV31SpecValidator(document()).validate()
    for reference in set(references({**document(), "example": None})):
        target: Any = document()
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        assert isinstance(target, dict)


@pytest.mark.parametrize(
    ("name", "example"),
    [(name, example) for kind in EXAMPLES.values() for name, example in kind.items()],
    ids=[name for kind in EXAMPLES.values() for name in kind],
)
def test_an_example_fits_its_schema(name, example):
    schema = {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(example)


def test_every_body_has_an_example_and_every_example_is_shown():
    shown = set()
    for method, path, operation in operations():
        contents = operation.get("requestBody", {}).get("content", {})
        assert all("example" in content for content in contents.values()), (method, path)
        shown.add(json.dumps([content["example"] for content in contents.values()]))
        for answer in operation["responses"].values():
            shown |= {json.dumps(each.get("example")) for each in answer.get("content", {}).values()}
    for name, example in {**EXAMPLES["requests"], **EXAMPLES["answers"]}.items():
        assert any(json.dumps(each) in shown for each in (example, [example])), name


def test_operations_have_names_that_make_good_methods():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) and "api_v1" not in name for name in names), names
    assert operation_id("get", "/api/v1/jobs/{job_id}") == "get_job"
    assert operation_id("get", "/api/v1/jobs/{job_id}/nodes") == "list_job_nodes"
    assert operation_id("post", "/api/v1/jobs/{job_id}/nodes/{node_id}/retry") == "retry_node"
    # Each entry of the table is of a route.
    routes = {(method, path.removeprefix("/api/v1")) for method, path, _ in operations()}
    assert set(OPERATION_IDS) <= routes


def test_operations_keep_their_names():
    """A name is a method of generated clients. A line of the file may be added, and changed with a new API."""
    names = {
        f"{operation['operationId']} {method.upper()} {path}" for method, path, operation in operations()
    }
    known = Path(__file__).with_name("operation_names.txt").read_text(encoding="utf-8").splitlines()
    assert set(known) <= names


def answers_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of an operation, those that are shared included."""
    shared = document()["components"]["responses"]
    return {
        status: shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
        for status, answer in operation["responses"].items()
    }


def test_errors_are_documented_with_their_codes():
    for method, path, operation in operations():
        answers = answers_of(operation)
        codes = {status: answer["x-codes"] for status, answer in answers.items() if "x-codes" in answer}
        assert "request_invalid" in codes["422"], (method, path)
        assert ({"401", "403", "429"} <= set(codes)) == ("x-scope" in operation), (method, path)
        assert ({"413", "415"} <= set(codes)) == ("requestBody" in operation), (method, path)
        assert all(", ".join(names) in answers[status]["description"] for status, names in codes.items())
    cancel = answers_of(document()["paths"]["/api/v1/jobs/{job_id}/cancel"]["post"])
    assert "job_not_found" in cancel["404"]["x-codes"]
    assert {"job_finished", "job_already_cancelled"} <= set(cancel["409"]["x-codes"])
    assert "Retry-After" in cancel["429"]["headers"]


def test_every_part_of_a_path_with_errors_is_of_a_route():
    paths = [(method.upper(), path.removeprefix("/api/v1") + "/") for method, path, _ in operations()]
    for part in ERRORS_OF_PARTS:
        wanted, _, words = part.rpartition(" ")
        assert any(f"/{words}/" in path and wanted in ("", method) for method, path in paths), part


def test_lists_document_the_link_to_their_next_page():
    for method, path, operation in operations():
        parameters = {parameter["name"] for parameter in operation.get("parameters", ())}
        if method == "get" and "200" in operation["responses"]:
            headers = operation["responses"]["200"]["headers"]
            assert ("Link" in headers) == ("cursor" in parameters), path


def test_filters_with_a_closed_set_of_words_are_enums():
    def words(path: str, name: str) -> list[str]:
        parameters = document()["paths"][path]["get"]["parameters"]
        (schema,) = (parameter["schema"] for parameter in parameters if parameter["name"] == name)
        enum: list[str] = schema["anyOf"][0]["items"]["enum"]
        return enum

    assert "WAITING" in words("/api/v1/jobs", "status")
    assert "SKIPPED" in words("/api/v1/nodes", "status")
    assert "JobResumed" in words("/api/v1/events", "type")


def test_bodies_of_lines_are_described():
    for path in ("/api/v1/jobs/graph/lines", "/api/v1/jobs/{job_id}/tasks/lines"):
        content = document()["paths"][path]["post"]["requestBody"]["content"]["application/x-ndjson"]
        line = content["schema"]["x-line"]["$ref"].rpartition("/")[2]
        schema = {"$ref": f"#/components/schemas/{line}", "components": document()["components"]}
        for text in content["example"].splitlines():
            Draft202012Validator(schema).validate(json.loads(text))


def test_headers_are_documented_where_they_are_sent():
    paths = document()["paths"]
    submit = paths["/api/v1/jobs"]["post"]
    assert "Idempotency-Key" in [parameter["name"] for parameter in submit["parameters"]]
    assert {"X-Request-ID", "Location"} <= set(submit["responses"]["202"]["headers"])
    assert {"X-Request-ID", "Retry-After"} <= set(submit["responses"]["default"]["headers"])
    show = paths["/api/v1/workflows/{workflow_id}"]["get"]
    assert ("ETag" in show["responses"]["200"]["headers"], "304" in show["responses"]) == (True, True)


def test_routes_with_an_etag_are_those_that_document_it():
    documented = {path for _, path, operation in operations() if "304" in operation["responses"]}

    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            for method, path, operation in operations():
                if method != "get" or "stream" in operation["operationId"] or "handler" in path:
                    continue
                answer = await api.get(path.replace("{workflow_id}", "hello").replace("{job_id}", "1"))
                if answer.status_code == 200:
                    assert ("etag" in answer.headers) == (path in documented), path

    asyncio.run(main())


def test_an_answer_has_one_type_unless_a_parameter_chooses():
    types = {
        path: [*operation["responses"]["200"]["content"]]
        for method, path, operation in operations()
        if method == "get" and [*operation["responses"]["200"]["content"]] != ["application/json"]
    }
    job, workflow, logs = (
        "/api/v1/jobs/{job_id}",
        "/api/v1/workflows/{workflow_id}",
        "application/json text/event-stream",
    )
    assert types == {
        "/metrics": ["text/plain"],
        "/api/v1/stream": ["text/event-stream"],
        f"{job}/stream": ["text/event-stream"],
        f"{job}/logs": logs.split(),
        f"{job}/nodes/{{node_id}}/logs": logs.split(),
        f"{job}/logs/text": ["text/plain"],
        f"{job}/footprints": ["application/geo+json"],
        f"{workflow}/schema": ["application/schema+json"],
        f"{workflow}/diagram.svg": ["image/svg+xml"],
    }


def generate_client(folder: Path) -> Path:
    """Let a generator make a package; return its folder. It knows neither SVG nor NDJSON."""
    (folder / "openapi.json").write_text(json.dumps(document()))
    (folder / "config.yaml").write_text(
        "post_hooks: []\n"
        "content_type_overrides:\n"
        "  image/svg+xml: text/plain\n"
        "  application/x-ndjson: application/octet-stream\n"
    )
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--path",
        "openapi.json",
        "--meta",
        "none",
    ]
    done = subprocess.run(
        [*command, "--output-path", "generated_client", "--config", "config.yaml", "--fail-on-warning"],
        check=False, capture_output=True, text=True, cwd=folder, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "generated_client"


@pytest.mark.slow
@pytest.mark.process
def test_a_generated_client_has_a_method_for_each_operation_and_understands_the_answers(
    tmp_path, monkeypatch
):
    folder = generate_client(tmp_path)
    modules = {path.stem: path for path in (folder / "api").rglob("*.py")}
    assert {operation["operationId"] for _, _, operation in operations()} <= set(modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    for path in folder.rglob("*.py"):
        importlib.import_module(
            ".".join(path.relative_to(tmp_path).with_suffix("").parts).removesuffix(".__init__")
        )
    models = importlib.import_module("generated_client.models")

    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            client = importlib.import_module("generated_client").Client(base_url="http://test")
            api.http.headers.update(api.headers)
            client.set_async_httpx_client(api.http)

            async def call(name: str, *args: Any, **kwargs: Any) -> tuple[int, str, Any]:
                parts = modules[name].relative_to(tmp_path).with_suffix("").parts
                answer = await importlib.import_module(".".join(parts)).asyncio_detailed(
                    *args, client=client, **kwargs
                )
                return answer.status_code.value, type(answer.parsed).__name__, answer.parsed

            submitted = await call("submit_job", body=models.SubmitBody(workflow_id="hello"))
            assert submitted[:2] == (202, "SubmitResult")
            job_id = submitted[2].job_id
            await api.until(job_id, "WAITING")
            cancelled = await call("cancel_job", job_id)
            await finished(api.application, job_id)
            slow = models.TestBody.from_dict({"params": {"name": "Ada"}, "wait_seconds": 0})
            answers = {
                "cancel_job": cancelled,
                **{
                    name: await call(name)
                    for name in ("check_readiness", "check_health", "get_prometheus_metrics")
                },
                **{name: await call(name, job_id) for name in ("get_job", "stream_job", "get_job_log_text")},
                "get_workflow_diagram": await call("get_workflow_diagram", "hello"),
                # A body that may be missing is missing.
                "resume_job": await call("resume_job", job_id, dry_run=True),
                "test_handler": await call("test_handler", "greet", body=slow),
                "get_node": await call("get_node", job_id, "nothing"),
            }
            assert {name: answer[:2] for name, answer in answers.items()} == {
                "cancel_job": (200, "CommandResult"),
                "check_readiness": (200, "ReadinessView"),
                "check_health": (200, "HealthView"),
                "get_prometheus_metrics": (200, "str"),
                "get_job": (200, "JobDetailView"),
                "stream_job": (200, "str"),
                "get_job_log_text": (200, "str"),
                "get_workflow_diagram": (200, "str"),
                "resume_job": (200, "ResumePlanView"),
                "test_handler": (202, "HandlerTestView"),
                "get_node": (404, "ProblemDocument"),
            }

    asyncio.run(main())
