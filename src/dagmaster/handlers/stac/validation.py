"""Whether a document is STAC, asked twice: of stac-pydantic's models, and of the core schemas that pystac ships.

Nothing here asks a network. Extensions are named by URLs, and what those say is not looked up.
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
from dagmaster.geo.stac_items import STAC_VERSION, check_collection, check_item

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODELS: Final[Mapping[str, type[BaseModel]]] = {"item": stac_pydantic.Item, "collection": stac_pydantic.Collection}


def check_stac_item(item: Any) -> dict[str, Any]:
    """An item that a catalog can take and that is STAC; else `invalid_input`, with what is wrong and where."""
    known = check_item(item)
    _check("item", known.item, f"the item {known.id!r}")
    return known.item


def check_stac_collection(collection: Any) -> dict[str, Any]:
    """A collection that is STAC; else `invalid_input`."""
    check_collection(collection)
    checked: dict[str, Any] = collection
    _check("collection", checked, f"the collection {checked['id']!r}")
    return checked


def problem_of(item: Any) -> str | None:
    """What is wrong with an item, if anything is."""
    try:
        check_stac_item(item)
    except PermanentError as error:
        return str(error)
    return None


def _check(kind: str, document: dict[str, Any], name: str) -> None:
    version = document.get("stac_version")
    if not isinstance(version, str) or not version.startswith("1."):
        raise invalid_input(f"{name} is of the STAC version {version!r}: expected 1.0 or 1.1")
    try:
        _MODELS[kind].model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise invalid_input(f"{name} is not valid STAC at {_place(first['loc'])}: {first['msg']}") from None
    # A document of 1.0 is one of 1.1 too, but for what it calls itself.
    found = best_match(_validator(kind).iter_errors({**document, "stac_version": STAC_VERSION}))
    if found is not None and list(found.absolute_path) == ["collection"]:
        # The schema says that 'x' should not be valid under {}.
        raise invalid_input(f"{name} names a collection: it has to have a link to it, of rel 'collection', too")
    if found is not None:
        raise invalid_input(f"{name} is not valid STAC at {_place(found.absolute_path)}: {found.message[:300]}")


def _place(path: Any) -> str:
    return ".".join(str(one) for one in path) or "its top"


@cache
def _validator(kind: str) -> jsonschema.Draft7Validator:
    schemas = get_local_schema_cache()
    # A registry that retrieves nothing: a schema that is not at hand is an error, not a request.
    registry: Registry[Any] = Registry().with_resources(
        [(uri, Resource.from_contents(schema)) for uri, schema in schemas.items()]
    )
    schema = schemas[f"https://schemas.stacspec.org/v{STAC_VERSION}/{kind}-spec/json-schema/{kind}.json"]
    return jsonschema.Draft7Validator(schema, registry=registry)
