"""Footprints of the children of fan-outs, as GeoJSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagmaster.json_types import JsonObject
from dagmaster.records.nodes import NodeStatusRecord
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintView(NodeStatusRecord, order={"fan_out": "node_id", "fan_out_index": "fan_out"}):
    """A child of a fan-out with the outline of its item or output. `to_dict()` is a GeoJSON Feature."""

    fan_out: str
    fan_out_index: int
    error: str | None
    geometry: JsonObject

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        del schema["properties"]["geometry"]
        schema["required"].remove("geometry")
        description = schema.pop("description")
        return {
            "type": "object",
            "description": description,
            "properties": {
                "type": {"const": "Feature"},
                "id": {"type": "string"},
                "geometry": {"type": "object"},
                "properties": schema,
            },
            "required": ["type", "id", "geometry", "properties"],
            "additionalProperties": False,
        }

    @classmethod
    def parse_fields(cls, document: Any) -> Any:
        return {**document["properties"], "geometry": document["geometry"]}

    def to_dict(self) -> dict[str, Any]:
        properties = super(FootprintView, self).to_dict()
        geometry = properties.pop("geometry")
        return {"type": "Feature", "id": self.node_id, "geometry": geometry, "properties": properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintsView(Record):
    """Footprints of a job. `to_dict()` is a GeoJSON FeatureCollection.

    `next_cursor` is null on the last page.
    """

    job_id: str
    workflow_id: str
    version: int
    features: tuple[FootprintView, ...]
    next_cursor: str | None

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        schema["properties"] = {"type": {"const": "FeatureCollection"}, **schema["properties"]}
        schema["required"] = ["type", *schema["required"]]
        return schema

    def to_dict(self) -> dict[str, Any]:
        return {"type": "FeatureCollection", **super(FootprintsView, self).to_dict()}
