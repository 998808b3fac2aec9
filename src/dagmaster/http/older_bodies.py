"""Bodies of other systems, on the paths of other systems (`http.aliases`): translated to bodies of this API.

A route under its own path takes only its own body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dagmaster.errors import Problem, RequestInvalid

Document = dict[str, Any]


class Translation(NamedTuple):
    """How a body becomes that of the route which answers. A field that is null counts as missing."""

    names: Mapping[str, str] = {}
    """Fields that have another name here."""
    dropped: frozenset[str] = frozenset()
    """Fields that say nothing here."""
    values: Mapping[str, Callable[[Any], Any]] = {}
    """How a value is written here, by the field's name here."""


def _error_of(value: Any) -> Any:
    """Return the error of a task: other systems send its sentence alone."""
    return {"message": value} if isinstance(value, str) else value


_SUBMIT: Final = Translation(dropped=frozenset({"submitted_at", "message_id"}))
_REPORT: Final = Translation(
    names={"instance_id": "job_id", "error_message": "error"}, values={"error": _error_of}
)

OLDER_BODIES: Final[Mapping[str, Translation]] = {
    "/api/dag/submit": _SUBMIT,
    "/api/platform/submit": _SUBMIT,
    "/api/task/complete": _REPORT,
    "/api/callbacks/{id}": _REPORT,
    "/api/test/handler": Translation(names={"input_params": "params", "handler_name": "handler"}),
}
"""By the paths of `aliases.ALIASES`. `inputs` of a submit, and all that is not named, is as it is here."""


def translate_body(older_path: str | None, body: Any) -> Any:
    """Return the body of a route for one that came by an older path; raise `RequestInvalid` if it is both."""
    translation = OLDER_BODIES.get(older_path or "")
    if translation is None or not isinstance(body, dict):
        return body
    translated: Document = {}
    for name, value in body.items():
        if value is None or name in translation.dropped:
            continue
        here = translation.names.get(name, name)
        if here in translated:
            message = f"it has two names, and the body has both: leave out {name!r} or the other one"
            raise RequestInvalid([Problem(message=message, path=f"body.{here}")])
        write = translation.values.get(here)
        translated[here] = value if write is None else write(value)
    return translated
