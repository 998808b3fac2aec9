"""The JSON Schema of everything that is sent as JSON, in one document."""

from __future__ import annotations

from typing import Any

from dagmaster.application import views
from dagmaster.errors import Problem
from dagmaster.ports.task_messages import message_schema
from dagmaster.records.json_schema import page_schema, record_schema, schema_name
from dagmaster.records.record import Record


def view_schemas() -> dict[str, Any]:
    classes: list[Any] = [getattr(views, name) for name in views.__all__]
    shown = [
        view
        for view in classes
        if isinstance(view, type) and issubclass(view, Record | Problem) and view is not Record
    ]
    definitions = {schema_name(view): record_schema(view) for view in sorted(shown, key=schema_name)}
    for name in [name for name in definitions if name.endswith("View")]:
        definitions[f"{name}Page"] = page_schema(name)
    message = message_schema()
    definitions |= {"TaskMessage": message, **message.pop("$defs")}
    del message["$schema"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Views of dagmaster",
        "description": "What `--json` prints and what an HTTP route sends. Every key is always present.",
        "$defs": definitions,
    }
