"""The options of a submit as fields of a body."""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import Field, create_model

from dagmaster.http.routes import Body
from dagmaster.ports.job_options import DEFAULTS, SUBMITTER_OPTIONS, JobOptions


def _fields() -> dict[str, Any]:
    types = get_type_hints(JobOptions)
    return {
        name: (
            types[name],
            Field(
                default=DEFAULTS[name],
                min_length=option.min_length,
                max_length=option.max_length,
                ge=None if option.maximum is None else 0,
                le=option.maximum,
                description=option.description,
            ),
        )
        for name, option in SUBMITTER_OPTIONS.items()
    }


class OptionsBody(create_model("OptionsBody", __base__=Body, **_fields())):  # type: ignore[misc]
    """A body with the options that submitters set."""
