"""Published definitions of handlers: written by workers, read where the code of the handlers is not.

A definition has the JSON Schemas of params and output, and the defaults of tasks. Rules that a handler checks
in code are not part of it: they are checked when a task runs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dagmaster.engine.retry import Backoff, RetryPolicy
from dagmaster.ports.handler_definitions import HandlerDefinition
from dagmaster.sdk.schema_models import model_from_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import BaseModel

    from dagmaster.json_types import JsonObject
    from dagmaster.sdk.handler_catalog import HandlerCatalog, HandlerFacts
    from dagmaster.sdk.handler_decorator import HandlerSpec


def describe_handler(spec: HandlerSpec) -> dict[str, Any]:
    known, output_keys = spec.known_params(), spec.output_keys()
    return {
        "name": spec.name,
        "aliases": list(spec.aliases),
        "description": spec.description,
        "module": spec.module,
        "version": spec.version,
        "queue": spec.queue,
        "timeout_seconds": spec.timeout_seconds,
        "retry": None if spec.retry is None else {**asdict(spec.retry), "backoff": spec.retry.backoff.value},
        "params": spec.params_schema(),
        "known_params": None if known is None else sorted(known),
        "required_params": sorted(spec.required_params()),
        "output": _output_schema(spec),
        "output_keys": None if output_keys is None else sorted(output_keys),
    }


def define_handler(
    *,
    name: str,
    version: str,
    description: str = "",
    queue: str | None = None,
    timeout_seconds: float | None = None,
    params: JsonObject | None = None,
    output: JsonObject | None = None,
) -> HandlerDefinition:
    """Return the definition of a handler that is known by its schemas only."""
    return to_definition(
        {
            "name": name,
            "aliases": [],
            "description": description,
            "module": "",
            "version": version,
            "queue": queue,
            "timeout_seconds": timeout_seconds,
            "retry": None,
            "params": params,
            "known_params": _closed_properties(params),
            "required_params": sorted({str(key) for key in _list(params, "required")}),
            "output": output,
            "output_keys": _closed_properties(output),
        }
    )


def to_definition(document: Mapping[str, Any]) -> HandlerDefinition:
    text = json.dumps(document)
    # The order of keys is the order of the signature: it is shown, but it is no change.
    canonical = json.dumps(document, sort_keys=True)
    content_hash = hashlib.sha256(canonical.encode()).hexdigest()
    return HandlerDefinition(document["name"], document["version"], content_hash, text)


class PublishedHandler:
    """A handler as its definition describes it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.name: str = document["name"]
        self.aliases: tuple[str, ...] = tuple(document.get("aliases") or ())
        self.queue: str | None = document.get("queue")
        self.timeout_seconds: float | None = document.get("timeout_seconds")

    @cached_property
    def retry(self) -> RetryPolicy | None:
        """Return the retry policy of tasks that name none."""
        keys = self._document.get("retry")
        return None if keys is None else RetryPolicy(**{**keys, "backoff": Backoff(keys["backoff"])})

    @cached_property
    def params_model(self) -> type[BaseModel] | None:
        """Return a model made from the schema of the params; None if they are not typed."""
        schema = self._document.get("params")
        return None if schema is None else model_from_schema(schema)

    def known_params(self) -> frozenset[str] | None:
        """Return the accepted params; None if any are accepted."""
        return _optional_set(self._document.get("known_params"))

    def required_params(self) -> frozenset[str]:
        return frozenset(self._document.get("required_params") or ())

    def output_keys(self) -> frozenset[str] | None:
        """Return the keys of the output; None if untyped or open."""
        return _optional_set(self._document.get("output_keys"))


class PublishedHandlers:
    """The handlers that workers have published."""

    missing_hint = "no worker has published it: start a worker that has it"
    python_queue: str | None = None
    """Not used: Python workflows are compiled where their code is."""

    def __init__(self, documents: Iterable[Mapping[str, Any]], default_queue: str | None = None) -> None:
        self.default_queue = default_queue
        handlers = [PublishedHandler(document) for document in documents]
        self._names = sorted(handler.name for handler in handlers)
        # A name wins over the alias of another handler.
        self._handlers = {alias: handler for handler in handlers for alias in handler.aliases}
        self._handlers |= {handler.name: handler for handler in handlers}

    def find(self, name: str) -> PublishedHandler | None:
        return self._handlers.get(name)

    def names(self) -> list[str]:
        return self._names


class KnownHandlers:
    """Handlers of this machine, and those that workers have published where it has none of that name."""

    missing_hint = (
        "no worker has published it, and --handlers names no module or file that has it. Functions without a"
        " decorator"
        " are not published, even if workers have them: name their module or file"
    )

    def __init__(self, own: HandlerCatalog, load: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self._own = own
        self._load = load

    @property
    def default_queue(self) -> str | None:
        return self._own.default_queue

    @property
    def python_queue(self) -> str | None:
        """Return the queue of tasks of Python workflows that name none."""
        return self._own.python_queue

    def find(self, name: str) -> HandlerFacts | None:
        return self._own.find(name) or self._published.find(name)

    def names(self) -> list[str]:
        return sorted({*self._own.names(), *self._published.names()})

    @cached_property
    def _published(self) -> PublishedHandlers:
        # Only when a name is not known here: most workflows need no question.
        return PublishedHandlers(self._load(), self.default_queue)


def _output_schema(spec: HandlerSpec) -> dict[str, Any] | None:
    if spec.output_model is not None:
        return spec.output_model.model_json_schema()
    keys = spec.output_keys()
    return None if keys is None else {"type": "object", "properties": {key: {} for key in sorted(keys)}}


def _closed_properties(schema: JsonObject | None) -> list[str] | None:
    """Return the keys of an object that allows no others; None if it allows any."""
    if schema is None or schema.get("additionalProperties") is not False:
        return None
    properties = schema.get("properties")
    return sorted(properties) if isinstance(properties, dict) else []


def _list(schema: JsonObject | None, key: str) -> list[Any]:
    value = None if schema is None else schema.get(key)
    return value if isinstance(value, list) else []


def _optional_set(names: list[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
