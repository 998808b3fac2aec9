"""The OpenAPI document of a gateway: complete, valid, closed, and the one that is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from dagmaster.http.gateway.app import gateway_document, route_scopes
from dagmaster.http.gateway.closed_problems import CODES

ROOT = Path(__file__).parents[4]
DOCUMENT = gateway_document()
OPERATIONS = [
    (path, method, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
INTERNAL = ("/status/", "/admin/", "/proxy/")
NEVER = {
    "job_id",
    "node_id",
    "nodes",
    "owner_id",
    "host",
    "worker",
    "worker_id",
    "correlation_id",
    "node",
    "task_id",
}
"""Names that no answer to a partner may have."""


def test_the_document_is_valid_and_published():
    validate(DOCUMENT)
    published = (ROOT / "docs" / "reference" / "gateway-openapi.json").read_text()
    assert json.loads(published) == json.loads(json.dumps(DOCUMENT)), "make docs"


def test_every_route_is_described():
    described = {(method.upper(), path.replace("{path}", "{path:path}")) for path, method, _ in OPERATIONS}
    assert described == set(route_scopes())
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_an_operation_says_what_it_takes_and_answers(path, method, operation):
    assert operation["description"]
    for status, answer in operation["responses"].items():
        # They answer with something other than a record.
        if path in {"/proxy/{target}/{path}", "/metrics"} and status == "200":
            continue
        (content,) = answer["content"].values()
        assert "$ref" in content["schema"], (path, status)
    if method == "post" and not path.startswith("/proxy"):
        assert operation["requestBody"]["content"]["application/json"]["example"]


def test_every_example_fits_its_schema():
    schemas = DOCUMENT["components"]["schemas"]
    resolver: dict[str, Any] = {"components": {"schemas": schemas}}
    examples = json.loads((ROOT / "src/dagmaster/http/gateway/examples.json").read_text())
    for name, example in examples.items():
        Draft202012Validator({"$ref": f"#/components/schemas/{name}", **resolver}).validate(example)
    answered = {
        content["schema"]["$ref"].rpartition("/")[2]
        for _, _, operation in OPERATIONS
        for answer in operation["responses"].values()
        for content in answer.get("content", {}).values()
    }
    assert answered <= examples.keys()


def test_no_answer_to_a_partner_has_a_name_of_ours():
    schemas = DOCUMENT["components"]["schemas"]
    pending = [
        content["schema"]["$ref"].rpartition("/")[2]
        for path, _, operation in OPERATIONS
        if not path.startswith(INTERNAL)
        for answer in operation["responses"].values()
        for content in answer["content"].values()
    ]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            text = json.dumps(schemas[name])
            assert not schemas[name].get("properties", {}).keys() & NEVER, name
            assert schemas[name]["additionalProperties"] is False, name
            pending += [part.split('"')[0] for part in text.split("#/components/schemas/")[1:]]
    assert {"PlatformStatusResponse", "BatchOutcome", "RequestProgressView", "ProblemResponse"} <= seen
    assert schemas["ProblemResponse"]["properties"]["code"]["enum"] == sorted(CODES)
