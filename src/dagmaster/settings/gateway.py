"""The settings of the gateway, which partners call instead of a server."""

from __future__ import annotations

import re
from typing import Final

from pydantic import BaseModel, Field, field_validator

_ADDRESS: Final = re.compile(r"https?://[^\s/?#@\\]+(/[^\s?#@\\]*)?")


class GatewaySettings(BaseModel):
    """What a gateway forwards to."""

    orchestrator_url: str | None = Field(
        default=None,
        description="The server to which a gateway forwards every change, such as http://server:8420. The"
        " credentials of callers are sent there: use https outside of a private network.",
    )
    worker_url: str | None = Field(
        default=None,
        description="An address of a worker, such as that of its metrics, which administrators reach through"
        " a gateway at /proxy/worker. Default: none.",
    )

    @field_validator("orchestrator_url", "worker_url")
    @classmethod
    def _check_target(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not _ADDRESS.fullmatch(value) or ".." in value or "%" in value:
            raise ValueError("must be an http or https URL without a user, a query and '..'")
        return value.rstrip("/")
