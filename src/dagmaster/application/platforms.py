"""Platforms: declare whose identifiers partners send, and translate what they send."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.application.node_lookup import suggest_name
from dagmaster.errors import PlatformInvalid, PlatformNotFound, PlatformRefsInvalid, Problem, ScopeMissing
from dagmaster.records.requests import MAX_PLATFORM_ID
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonValue
    from dagmaster.records.requests import PlatformRecord, RequestBody

MAX_ID_FIELDS: Final = 16
MAX_MAPPED_FIELDS: Final = 64
MAX_TITLE: Final = 128
MAX_REF: Final = 256
"""The longest text that identifies something on a platform."""
FIELD_TYPES: Final = ("text", "integer")
SUBMIT_FIELDS: Final = ("submitted_by", "callback_url", "priority")
"""The fields of a submit that a field of a platform may stand for."""
_BODY_FIELDS: Final = frozenset(
    {
        "request_id",
        "workflow_id",
        "input_params",
        "idempotency_key",
        "platform_id",
        "platform_refs",
        "sandbox",
    }
    | {*SUBMIT_FIELDS}
)
_PLATFORM_ID: Final = re.compile(rf"[a-z][a-z0-9_-]{{0,{MAX_PLATFORM_ID - 1}}}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LARGEST: Final = 2**63 - 1


# ── Declarations ────────────────────────────────────────────────────────────────────────────────────────────


async def list_platforms(app: Application) -> Sequence[PlatformRecord]:
    """Return the platforms that the caller may use, by id."""
    return await app.read.requests.platforms()


async def show_platform(app: Application, platform_id: str) -> PlatformRecord:
    """Return one platform; raise `PlatformNotFound`."""
    platforms = {one.platform_id: one for one in await list_platforms(app)}
    if platform_id not in platforms:
        raise PlatformNotFound(_unknown_platform(platform_id, platforms))
    return platforms[platform_id]


async def set_platform(app: Application, platform: PlatformRecord) -> PlatformRecord:
    """Declare a platform, or replace its declaration; raise `PlatformInvalid` with every mistake.

    Platforms belong to the installation: raise `ScopeMissing` for the administrator of a tenant.
    """
    if app.caller is not None and not app.caller.is_installation_admin:
        raise ScopeMissing("platforms belong to the installation: its administrator declares them")
    problems = [Problem(message=message, path=path) for path, message in _mistakes(platform)]
    if problems:
        raise PlatformInvalid(problems)
    origin = app.origin
    details = {name: value for name, value in platform.to_dict().items() if name != "platform_id"}
    audit = (
        [] if origin is None else [origin.entry("platform.set", "platform", platform.platform_id, details)]
    )
    await app.client.requests.put_platform(platform, audit=audit)
    return platform


def _mistakes(platform: PlatformRecord) -> Iterator[tuple[str, str]]:
    if not _PLATFORM_ID.fullmatch(platform.platform_id):
        yield "platform_id", "a letter, then at most 31 of a-z, 0-9, _ and -"
    if len(platform.title) > MAX_TITLE or not platform.title.isprintable():
        yield "title", f"at most {MAX_TITLE} printable characters"
    if not 1 <= len(platform.id_fields) <= MAX_ID_FIELDS:
        yield "id_fields", f"name 1 to {MAX_ID_FIELDS} fields that identify a dataset"
    if len(platform.optional_id_fields) > MAX_ID_FIELDS:
        yield "optional_id_fields", f"at most {MAX_ID_FIELDS} fields"
    ids = (*platform.id_fields, *platform.optional_id_fields)
    for name in ids:
        if not _NAME.fullmatch(name) or name in _BODY_FIELDS:
            yield "id_fields", f"{name[:80]!r} cannot be the name of a field"
    if len(set(ids)) < len(ids):
        yield "id_fields", "a field is named twice"
    for name, type_ in platform.field_types.items():
        if name not in ids:
            yield f"field_types.{name[:80]}", "this is no id field"
        elif type_ not in FIELD_TYPES:
            yield f"field_types.{name}", f"a type is one of: {', '.join(FIELD_TYPES)}"
    yield from _map_mistakes(platform, ids)


def _map_mistakes(platform: PlatformRecord, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    if len(platform.field_map) > MAX_MAPPED_FIELDS:
        yield "field_map", f"at most {MAX_MAPPED_FIELDS} fields"
        return
    targets: set[str] = set()
    for name, target in platform.field_map.items():
        path = f"field_map.{name[:80]}"
        if not _NAME.fullmatch(name) or name in _BODY_FIELDS or name in ids:
            yield path, "a submit has a field of this name, or none can have it"
        elif not _is_target(target, ids):
            yield (
                path,
                (
                    "the place of a field is platform_refs.NAME of an id field, inputs.NAME, or one of:"
                    f" {', '.join(SUBMIT_FIELDS)}"
                ),
            )
        elif target in targets:
            yield path, f"another field has the place {target} already"
        targets.add(target)


def _is_target(target: str, ids: Sequence[str]) -> bool:
    place, _, name = target.partition(".")
    if place == "platform_refs":
        return name in ids
    return target in SUBMIT_FIELDS or (place == "inputs" and _NAME.fullmatch(name) is not None)


# ── Translation ─────────────────────────────────────────────────────────────────────────────────────────────


class Translated(NamedTuple):
    """A body in our format. `sources`: which field of the partner an input came from."""

    body: RequestBody
    sources: Mapping[str, str]


def needs_platform(body: RequestBody) -> bool:
    """Return whether a body names a platform, or has fields that only a platform declares."""
    return body.platform_id is not None or body.platform_refs is not None or bool(body.fields)


def translate(body: RequestBody, platforms: Sequence[PlatformRecord]) -> Translated:
    """Return a body in our format; raise `PlatformRefsInvalid` with every mistake."""
    platform = _find_platform(body, {one.platform_id: one for one in platforms})
    places = _Places(body, platform)
    for name, value in body.fields.items():
        places.put(name, value)
    places.problems += _ref_problems(platform, places.refs)
    if places.problems:
        raise PlatformRefsInvalid(places.problems)
    return Translated(
        replace(
            body,
            platform_id=platform.platform_id,
            platform_refs=places.refs,
            input_params=places.inputs,
            fields={},
            **places.options,
        ),
        places.sources,
    )


def _find_platform(body: RequestBody, platforms: Mapping[str, PlatformRecord]) -> PlatformRecord:
    if body.platform_id is not None:
        if body.platform_id not in platforms:
            raise _invalid("platform_id", _unknown_platform(body.platform_id, platforms))
        return platforms[body.platform_id]
    if body.platform_refs is not None:
        raise _invalid("platform_id", "missing: name the platform of platform_refs")
    fitting = [one for one in platforms.values() if body.fields.keys() <= _field_names(one)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = format_list([one.platform_id for one in fitting])
        raise _invalid("platform_id", f"missing: several platforms have these fields: {names}")
    known = {*_BODY_FIELDS, *(name for one in platforms.values() for name in _field_names(one))}
    unknown = [name for name in body.fields if name not in known]
    if not unknown:
        raise _invalid("platform_id", "missing: no platform has all of these fields together")
    raise PlatformRefsInvalid(
        [
            Problem(message=f"unknown field. {suggest_name(name, sorted(known))}".strip(), path=name[:80])
            for name in unknown[:MAX_MAPPED_FIELDS]
        ]
    )


def _field_names(platform: PlatformRecord) -> set[str]:
    return {*platform.id_fields, *platform.optional_id_fields, *platform.field_map}


class _Places:
    """Where the fields of a partner's body belong."""

    def __init__(self, body: RequestBody, platform: PlatformRecord) -> None:
        self.refs = dict(body.platform_refs or {})
        self.inputs = dict(body.input_params)
        self.options: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._platform = platform

    def put(self, name: str, value: JsonValue) -> None:
        platform = self._platform
        is_id = name in platform.id_fields or name in platform.optional_id_fields
        target = f"platform_refs.{name}" if is_id else platform.field_map.get(name)
        if target is None:
            known = sorted({*_BODY_FIELDS, *_field_names(platform)})
            message = f"platform {platform.platform_id} has no such field. {suggest_name(name, known)}"
            self.problems.append(Problem(message=message.strip(), path=name[:80]))
            return
        place, _, key = target.partition(".")
        values = {"platform_refs": self.refs, "inputs": self.inputs}.get(place, self.options)
        key = key or place
        if key in values and (values[key] != value or type(values[key]) is not type(value)):
            self.problems.append(Problem(message=f"it is sent twice, also as {target}", path=name))
        values[key] = value
        if place == "inputs":
            self.sources[key] = name


def _ref_problems(platform: PlatformRecord, refs: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in platform.id_fields:
        if name not in refs:
            yield Problem(message=f"missing: platform {platform.platform_id} needs it", path=name)
    ids = (*platform.id_fields, *platform.optional_id_fields)
    for name, value in refs.items():
        if name not in ids:
            message = f"platform {platform.platform_id} has no such id field; it has: {', '.join(ids)}"
            yield Problem(message=message, path=f"platform_refs.{name[:80]}")
        elif mistake := _ref_mistake(platform.field_types.get(name, "text"), value):
            yield Problem(message=mistake, path=name)


def _ref_mistake(type_: str, value: JsonValue) -> str:
    if type_ == "integer":
        is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        return "" if is_integer else "not an integer"
    if not isinstance(value, str):
        return "not a text"
    return (
        "" if 1 <= len(value) <= MAX_REF and value.isprintable() else f"1 to {MAX_REF} printable characters"
    )


def _invalid(path: str, message: str) -> PlatformRefsInvalid:
    return PlatformRefsInvalid([Problem(message=message, path=path)])


def _unknown_platform(platform_id: str, platforms: Mapping[str, PlatformRecord]) -> str:
    if not platforms:
        return "there is no platform that you may use: ask the administrator"
    return f"no platform {platform_id[:80]!r}; you may use: {format_list(sorted(platforms))}"
