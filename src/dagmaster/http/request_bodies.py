"""The bodies of partners' requests, as their systems write them. A gateway takes the same ones."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from dagmaster.records.requests import RequestBody, RequestOption, RequestOptions

MAX_REQUESTS = 100


def _fields() -> dict[str, Any]:
    hints = get_type_hints(RequestOptions, localns={"JsonObject": dict[str, Any]})
    return {one.name: (hints[one.name], _field(one)) for one in fields(RequestOptions)}


def _field(one: dataclasses.Field[Any]) -> Any:
    option: RequestOption = one.metadata["option"]
    is_number = one.type == "int"
    limits: dict[str, Any] = (
        {"ge": option.minimum, "le": option.maximum}
        if is_number
        else {"min_length": option.minimum, "max_length": option.maximum}
    )
    default: Any = ... if one.default is dataclasses.MISSING else one.default
    return Field(default=default, description=option.description, **limits)


class PlatformSubmitRequest(create_model("RequestOptionsBody", __base__=BaseModel, **_fields())):  # type: ignore[misc]
    """What a partner asks for, with its own identifiers.

    These are `platform_refs` of a `platform_id`, or fields of the platform's own format next to the others:
    those that the platform declares.
    """

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "workflow_id": "ingest_raster",
                    "input_params": {"scale": 2},
                    "submitted_by": "portal",
                    "dataset_id": "floods-2026",
                    "resource_id": "tile-17",
                    "version_id": "v1.0",
                }
            ]
        },
    )

    input_params: dict[str, Any] = Field(default_factory=dict)
    sandbox: dict[str, Any] | None = Field(
        default=None,
        description="For sandbox keys: the outcome that is played. Default: `completed`.",
        examples=[{"outcome": "failed"}],
    )

    def to_body(self, **more: Any) -> RequestBody:
        """Return what is asked for. What the model does not declare are fields of the platform."""
        declared = {name: getattr(self, name) for name in PlatformSubmitRequest.model_fields}
        return RequestBody(**{**declared, "fields": dict(self.model_extra or {}), **more})


class SubmitRequest(PlatformSubmitRequest):
    """A request, with the id that a gateway has made for it."""

    request_id: str | None = Field(
        default=None,
        min_length=36,
        max_length=36,
        description="A random UUID. The same id and body: the same answer.",
    )

    def to_body(self, **more: Any) -> RequestBody:
        return PlatformSubmitRequest.to_body(self, request_id=self.request_id, **more)


class SubmitRequests(BaseModel):
    """Up to 100 requests, each with its own outcome."""

    model_config = ConfigDict(extra="forbid", strict=True)

    requests: list[SubmitRequest] = Field(min_length=1, max_length=MAX_REQUESTS)
