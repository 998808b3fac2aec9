"""The OpenAPI document of a gateway: FastAPI's, with the schemas of records, headers and examples."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from dagmaster.application.views.callbacks import PublicKeysView, PublicKeyView
from dagmaster.http.gateway.closed_problems import CODES
from dagmaster.http.gateway.routes import invalid_request
from dagmaster.records import gateway as records
from dagmaster.records.json_schema import record_schema, schema_name
from dagmaster.records.record import Record
from dagmaster.records.requests import RequestProgressRecord

HEADERS: Final[dict[str, Any]] = {
    "X-Request-ID": {
        "description": "The id of the HTTP request, for questions to us. A caller may send its own: 8 to 64"
        " letters, digits, '.', '_' or '-'.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "After how many seconds to send the request again.",
        "schema": {"type": "integer"},
    },
}
_LATER: Final = frozenset(("429", "503"))


def complete(described: dict[str, Any]) -> None:
    """Add to the document of FastAPI what it cannot derive."""
    schemas = described.setdefault("components", {}).setdefault("schemas", {})
    schemas |= _record_schemas()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    described["components"]["headers"] = HEADERS
    described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    text = files("dagmaster.http.gateway").joinpath("examples.json").read_text(encoding="utf-8")
    examples = json.loads(text)
    for operations in described["paths"].values():
        for operation in operations.values():
            _add_examples(operation.get("requestBody", {}), examples)
            if _of_fastapi(operation["responses"].get("422", {})):
                operation["responses"]["422"] = invalid_request()
            for status, answer in operation["responses"].items():
                content = answer.get("content", {})
                if content.get("application/json") == {"schema": {}}:
                    # FastAPI adds it to answers of another type.
                    del content["application/json"]
                _add_examples(answer, examples)
                names = ["X-Request-ID", *(["Retry-After"] if status in _LATER else [])]
                answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _of_fastapi(answer: dict[str, Any]) -> bool:
    content = answer.get("content", {}).get("application/json", {})
    return bool(content.get("schema", {}).get("$ref", "").endswith("/HTTPValidationError"))


def _record_schemas() -> dict[str, Any]:
    """Return the schemas of everything that a gateway answers."""
    classes: list[type[Record]] = [
        one
        for one in vars(records).values()
        if isinstance(one, type) and issubclass(one, Record) and one.__module__ == records.__name__
    ]
    classes += [RequestProgressRecord, PublicKeysView, PublicKeyView]
    schemas = {schema_name(one): record_schema(one) for one in classes}
    schemas["ProblemResponse"]["properties"]["code"]["enum"] = sorted(CODES)
    document: dict[str, Any] = json.loads(json.dumps(schemas).replace('"#/$defs/', '"#/components/schemas/'))
    return document


def _add_examples(part: dict[str, Any], examples: dict[str, Any]) -> None:
    for content in part.get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name in examples:
            content["example"] = examples[name]
