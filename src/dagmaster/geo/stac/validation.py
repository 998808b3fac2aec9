"""Validate STAC documents twice: by the models of stac-pydantic, and by the core schemas of pystac.

Offline: schemas of extensions, which are named by URL, are not fetched.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import stac_pydantic
from jsonschema.exceptions import best_match
from pydantic import BaseModel, ValidationError
from pystac.validation.local_validator import get_local_schema_cache
from referencing import Registry, Resource

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.rules.stac_items import STAC_VERSION, check_collection, check_item
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "item": stac_pydantic.Item,
    "collection": stac_pydantic.Collection,
}


def check_stac_item(item: Any) -> dict[str, Any]:
    """Return a valid item; raise `invalid_input` with the problem and its path otherwise."""
    checked = check_item(item)
    _validate("item", checked.item, f"the item {checked.id!r}")
    return checked.item


def check_stac_collection(collection: Any) -> dict[str, Any]:
    """Return a valid collection; raise `invalid_input` otherwise."""
    check_collection(collection)
    checked: dict[str, Any] = collection
    _validate("collection", checked, f"the collection {checked['id']!r}")
    return checked


def item_problem(item: Any) -> str | None:
    try:
        check_stac_item(item)
    except PermanentError as error:
        return str(error)
    return None


def _validate(kind: str, document: dict[str, Any], label: str) -> None:
    version = document.get("stac_version")
    if not isinstance(version, str) or not version.startswith("1."):
        raise invalid_input(f"{label} has the STAC version {version!r}: expected 1.0 or 1.1")
    try:
        _MODELS[kind].model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise invalid_input(_not_valid(label, first["loc"], first["msg"])) from None
    # A 1.0 document is also valid as 1.1, except for its version.
    violation = best_match(_validator(kind).iter_errors({**document, "stac_version": STAC_VERSION}))
    if violation is not None and list(violation.absolute_path) == ["collection"]:
        # The schema's own message is that 'x' should not be valid under {}.
        raise invalid_input(
            f"{label} names a collection but has no link to it: add a link with rel 'collection'"
        )
    if violation is not None:
        raise invalid_input(_not_valid(label, violation.absolute_path, violation.message))


def _not_valid(label: str, path: Any, words: str) -> str:
    return (
        f"{label} is not valid STAC: correct it at {_format_path(path)}{library_words('the schema', words)}"
    )


def _format_path(path: Any) -> str:
    return ".".join(str(part) for part in path) or "the top level"


@cache
def _validator(kind: str) -> jsonschema.Draft7Validator:
    schemas = get_local_schema_cache()
    # A registry that fetches nothing: a missing schema is an error, not a request.
    registry: Registry[Any] = Registry().with_resources(
        [(uri, Resource.from_contents(schema)) for uri, schema in schemas.items()]
    )
    schema = schemas[f"https://schemas.stacspec.org/v{STAC_VERSION}/{kind}-spec/json-schema/{kind}.json"]
    return jsonschema.Draft7Validator(schema, registry=registry)
