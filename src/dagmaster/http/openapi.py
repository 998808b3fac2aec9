"""The OpenAPI document: FastAPI's, with schemas of views, names of operations, headers and examples."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.views.json_schema import view_schemas
from dagmaster.http import problems
from dagmaster.http.operation_errors import Operation, add_error_responses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

API: Final = "/api/v1"

OPERATION_IDS: Final = {
    ("post", "/jobs"): "submit_job",
    ("post", "/jobs/batch"): "submit_jobs",
    ("post", "/jobs/definition"): "submit_definition",
    ("post", "/plan"): "plan_job",
    ("get", "/stats"): "count_jobs",
    ("get", "/lookup"): "find_jobs",
    ("get", "/jobs/{job_id}/why"): "explain_job",
    ("get", "/jobs/{job_id}/nodes/{node_id}/why"): "explain_node",
    ("get", "/jobs/{job_id}/stream"): "stream_job",
    ("get", "/stream"): "stream_jobs",
    ("post", "/jobs/cancel"): "cancel_jobs",
    ("post", "/jobs/resume"): "resume_jobs",
    ("post", "/jobs/{job_id}/nodes/cancel"): "cancel_nodes",
    ("post", "/jobs/{job_id}/nodes/retry"): "retry_nodes",
    ("post", "/jobs/{job_id}/signals/{name}"): "send_signal",
    ("get", "/events/counts"): "count_events",
    ("get", "/tasks/finished"): "list_finished_tasks",
    ("post", "/fleet/{service_id}/drain"): "drain_service",
    ("post", "/fleet/{service_id}/undrain"): "undrain_service",
    ("post", "/jobs/graph"): "submit_graph",
    ("post", "/jobs/graph/lines"): "submit_graph_lines",
    ("post", "/jobs/{job_id}/tasks"): "add_tasks",
    ("post", "/jobs/{job_id}/tasks/lines"): "add_task_lines",
    ("post", "/jobs/{job_id}/holds/{signal}/release"): "release_hold",
    ("get", "/jobs/{job_id}/graph/tasks"): "list_graph_tasks",
    ("get", "/jobs/{job_id}/graph/dependencies"): "list_graph_dependencies",
    ("post", "/workflows/{workflow_id}/activate"): "activate_version",
    ("post", "/workflows"): "publish_workflow",
    ("post", "/workflows/batch"): "publish_workflows",
    ("get", "/workflows/{workflow_id}/diff"): "compare_workflow_versions",
    ("get", "/workflows/{workflow_id}/diagram.svg"): "get_workflow_diagram",
    ("post", "/workers"): "register_worker",
    ("post", "/tasks/claim"): "claim_tasks",
    ("post", "/callbacks/task-heartbeat"): "send_heartbeat",
    ("post", "/callbacks/task-progress"): "report_task_progress",
    ("post", "/callbacks/task-result"): "report_task_result",
    ("get", "/metrics/workflows"): "get_workflow_metrics",
    ("get", "/metrics/workflows/{workflow_id}/nodes"): "get_node_metrics",
    ("get", "/metrics/workflows/{workflow_id}/history"): "get_workflow_history",
    ("get", "/metrics/durations"): "get_node_durations",
    ("get", "/metrics/failures"): "get_failure_metrics",
    ("get", "/metrics/throughput"): "get_throughput",
    ("post", "/tenants/{name}"): "set_tenant",
    ("get", "/tenants/{name}"): "get_tenant",
    ("post", "/handlers/test"): "test_named_handler",
    ("get", "/audit"): "list_changes",
    ("get", "/admin/schema"): "get_schema",
    ("get", "/admin/schema/versions"): "list_schema_versions",
    ("post", "/admin/migrate"): "migrate_schema",
    ("get", "/admin/invariants"): "audit_jobs",
    ("post", "/admin/metrics/rebuild"): "rebuild_metrics",
    ("get", "/callbacks/endpoints"): "list_callback_endpoints",
    ("post", "/callbacks/endpoints/pause"): "pause_callback_endpoint",
    ("post", "/callbacks/endpoints/resume"): "resume_callback_endpoint",
    ("post", "/callbacks/replay"): "replay_callbacks",
    ("get", "/callbacks/secrets"): "list_signing_secrets",
    ("post", "/callbacks/secrets"): "create_signing_secret",
    ("post", "/callbacks/secrets/{secret_id}/revoke"): "revoke_signing_secret",
    ("get", "/.well-known/webhook-keys"): "list_public_keys",
    ("get", "/.well-known/webhook-keys/{key_set}"): "list_public_keys_of_set",
    ("get", "/livez"): "check_liveness",
    ("get", "/readyz"): "check_readiness",
    ("get", "/health"): "check_health",
    ("get", "/metrics"): "get_prometheus_metrics",
}
"""The names of operations that do not follow from their paths. Clients are generated with them."""

HEADERS: Final[dict[str, Any]] = {
    "X-Request-ID": {
        "description": "The id of the request. A caller may send its own: 8 to 64 letters, digits, '.', '_'"
        " or '-'.",
        "schema": {"type": "string"},
        "example": "5f1c2a9be04d7736",
    },
    "ETag": {
        "description": "The version of the answer. Sent as If-None-Match, it gets 304 while nothing has"
        " changed.",
        "schema": {"type": "string"},
        "example": '"9b74c9897bac770ffc029102a200c5de"',
    },
    "Link": {
        "description": 'The next page of the list, with rel="next"; the last page has none.',
        "schema": {"type": "string"},
        "example": '</api/v1/jobs?limit=100&cursor=eyJqIjoxfQ>; rel="next"',
    },
    "Location": {
        "description": "The job.",
        "schema": {"type": "string"},
        "example": "/api/v1/jobs/116253640196554752",
    },
    "Retry-After": {
        "description": "With 429 and 503: after how many seconds to send the request again.",
        "schema": {"type": "integer"},
        "example": 2,
    },
    "RateLimit": {
        "description": "If requests are limited: how many may still be sent (r), and when all of them again"
        " (t, in s).",
        "schema": {"type": "string"},
        "example": '"caller";r=49;t=1',
    },
}
MORE_SCHEMAS: Final[dict[str, Any]] = {
    "ProblemDocument": problems.SCHEMA,
    "Svg": {"type": "string"},
    "LogText": {"type": "string"},
    "JsonFile": {"description": "Any JSON value, in chunks."},
    "Metrics": {"type": "string", "description": "Metrics in the text format of Prometheus."},
    "JsonSchema": {"type": "object", "description": "A JSON Schema (2020-12)."},
    "EventStream": {"type": "string", "description": "Server-Sent Events; see the reference of streams."},
    "Liveness": {"type": "object", "properties": {"status": {"const": "alive"}}, "required": ["status"]},
}
IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of an answer that the caller has.",
    "schema": {"type": "string"},
}
_PLURALS: Final = ("s", "children")
_SINGULAR_WORDS: Final = ("status", "progress")


def complete(document: dict[str, Any], lines: Iterable[type[BaseModel]] = ()) -> dict[str, Any]:
    """Add to the document of FastAPI what it cannot derive. `lines`: the models of bodies that are lines."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas |= _with_component_references(view_schemas()["$defs"])
    schemas |= MORE_SCHEMAS
    for model in lines:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= {**schema.pop("$defs", {}), model.__name__: schema}
    components["headers"] = HEADERS
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    examples = json.loads(files("dagmaster.http").joinpath("examples.json").read_text(encoding="utf-8"))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["operationId"] = operation_id(method, path)
            facts = _facts(method, path, operation)
            if "cursor" in facts.parameters and method == "get":
                operation["responses"]["200"]["headers"]["Link"] = {"$ref": "#/components/headers/Link"}
            add_error_responses(operation, facts)
            _simplify_optional_body(operation.get("requestBody", {}))
            for status, answer in operation["responses"].items():
                _drop_empty_content(answer)
                _add_headers(answer, status)
                if "x-codes" not in answer:
                    _add_examples(answer, examples["answers"])
            _add_examples(operation.get("requestBody", {}), examples["requests"])
    components["responses"] = _share_responses(document)
    return document


def _share_responses(document: dict[str, Any]) -> dict[str, Any]:
    """Replace the error that most operations describe with a status by a reference; return these answers."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    for operation in operations:
        for status, answer in operation["responses"].items():
            if "x-codes" in answer:
                counts[status][json.dumps(answer)] += 1
    texts = {status: each.most_common(1)[0][0] for status, each in counts.items()}
    for operation in operations:
        for status, answer in operation["responses"].items():
            if texts.get(status) == json.dumps(answer):
                operation["responses"][status] = {"$ref": f"#/components/responses/Error{status}"}
    return {f"Error{status}": json.loads(text) for status, text in sorted(texts.items())}


def _facts(method: str, path: str, operation: dict[str, Any]) -> Operation:
    return Operation(
        method=method.upper(),
        path=path.removeprefix(API),
        has_caller="x-scope" in operation,
        has_body="requestBody" in operation,
        parameters=frozenset(
            parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"
        ),
        streams=any(
            "text/event-stream" in each.get("content", ()) for each in operation["responses"].values()
        ),
    )


def operation_id(method: str, path: str) -> str:
    """Return the name of an operation: of the table, or of its path, as `list_job_nodes` and `cancel_job`."""
    path = path.removeprefix(API)
    if name := OPERATION_IDS.get((method, path)):
        return name
    parts = [part.replace("-", "_") for part in path.strip("/").split("/")]
    words = [_singular(part) if part != parts[-1] else part for part in parts if not part.startswith("{")]
    # The id of a node says enough.
    words = [word for word in words if word != "job" or "node" not in words or words[-1] == "nodes"]
    if method == "post":
        return "_".join(["create", _singular(words[0])] if len(words) == 1 else [words[-1], *words[:-1]])
    is_list = words[-1].endswith(_PLURALS) and words[-1] not in _SINGULAR_WORDS
    return "_".join(["list" if is_list else "get", *words])


def _singular(word: str) -> str:
    return word if word in _SINGULAR_WORDS else word.removesuffix("s")


def _simplify_optional_body(body: dict[str, Any]) -> None:
    """Describe an optional body by its schema alone: clients would send `null` for one that may be null."""
    for content in body.get("content", {}).values():
        options = content["schema"].get("anyOf", ())
        if not body.get("required") and {"type": "null"} in options:
            (content["schema"],) = (option for option in options if option != {"type": "null"})


def _drop_empty_content(answer: dict[str, Any]) -> None:
    """Drop the JSON that FastAPI adds to an answer of another type: clients would parse it as JSON."""
    content = answer.get("content", {})
    if content.get("application/json") == {"schema": {}}:
        del content["application/json"]


def _add_headers(answer: dict[str, Any], status: str) -> None:
    names = ["X-Request-ID", "RateLimit"]
    if status in ("default", "429", "503"):
        names.append("Retry-After")
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    answer["headers"] = headers | answer.get("headers", {})


def _add_examples(part: dict[str, Any], examples: dict[str, Any]) -> None:
    """Add the example of the schema of an answer or a body, if there is one."""
    for content in part.get("content", {}).values():
        schema = content.get("schema", {})
        is_list = schema.get("type") == "array"
        options = (schema.get("items", {}) if is_list else schema).get("anyOf", ()) or [
            schema.get("items", schema)
        ]
        names = [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]
        if names and names[0] in examples:
            example = examples[names[0]]
            content["example"] = [example] if is_list else example


def _with_component_references(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_component_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _with_component_references(item) for key, item in value.items()}
    if isinstance(copied.get("$ref"), str):
        copied["$ref"] = copied["$ref"].replace("#/$defs/", "#/components/schemas/")
    return copied
