"""Footprints of the children of fan-outs, as GeoJSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagmaster.application.views.view import View
from dagmaster.engine.status import NodeStatus
from dagmaster.json_types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintView(View):
    """A child of a fan-out with the outline of its item or output. `to_dict()` is a GeoJSON Feature."""

    node_id: str
    fan_out: str
    fan_out_index: int
    status: NodeStatus
    attempt: int
    error: str | None
    geometry: JsonObject

    def to_dict(self) -> dict[str, Any]:
        """Return the footprint as a GeoJSON Feature."""
        properties = super(FootprintView, self).to_dict()
        geometry = properties.pop("geometry")
        return {"type": "Feature", "id": self.node_id, "geometry": geometry, "properties": properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintsView(View):
    """Footprints of a job. `to_dict()` is a GeoJSON FeatureCollection.

    `next_cursor` is null on the last page.
    """

    job_id: str
    workflow_id: str
    version: int
    features: tuple[FootprintView, ...]
    next_cursor: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the footprints as a GeoJSON FeatureCollection."""
        return {"type": "FeatureCollection", **super(FootprintsView, self).to_dict()}
