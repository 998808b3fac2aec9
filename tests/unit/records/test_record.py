"""What a record shows of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import pytest

from dagmaster.records.json_schema import record_schema, schema_name
from dagmaster.records.parsing import parse_record
from dagmaster.records.record import READ_AT, Record, Timestamp, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TripRecord(Record):
    """A trip."""

    started_at: Timestamp
    place: str
    read_at: Timestamp = field(metadata=READ_AT)

    @property
    @shown(after="started_at")
    def duration_seconds(self) -> float | None:
        return self.read_at - self.started_at

    @property
    @shown(after="duration_seconds")
    def is_long(self) -> bool:
        return self.read_at - self.started_at > 60

    @property
    def secret(self) -> str:
        return "not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey(TripRecord, documented="JourneyView"):
    """A trip with stops."""

    stops: tuple[TripRecord, ...] = ()


TRIP = TripRecord(started_at=0.0, place="Bern", read_at=90.0)


def test_a_shown_property_has_its_place_in_the_json_and_in_the_schema():
    assert TRIP.to_dict() == {
        "started_at": "1970-01-01T00:00:00Z",
        "duration_seconds": 90.0,
        "is_long": True,
        "place": "Bern",
    }
    schema = record_schema(TripRecord)
    assert schema["required"] == list(TRIP.to_dict()) == list(schema["properties"])
    assert schema["properties"]["duration_seconds"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}


def test_a_subclass_shows_the_properties_of_its_base():
    journey = Journey(started_at=0.0, place="Bern", read_at=5.0, stops=(TRIP,))
    assert list(journey.to_dict()) == ["started_at", "duration_seconds", "is_long", "place", "stops"]


def test_a_record_is_documented_as_a_view_or_under_its_own_name():
    assert (schema_name(TripRecord), schema_name(Journey)) == ("TripView", "JourneyView")
    assert record_schema(Journey)["properties"]["stops"]["items"] == {"$ref": "#/$defs/TripView"}


def test_a_parsed_record_derives_what_is_shown():
    parsed = parse_record(TripRecord, {**TRIP.to_dict(), "duration_seconds": None}, read_at=30.0)
    assert (parsed.duration_seconds, parsed.is_long) == (30.0, False)


def test_a_property_is_shown_after_something_that_is_shown():
    class Wrong(TripRecord):
        @property
        @shown(after="read_at")
        def late(self) -> bool:
            return True

    with pytest.raises(ValueError, match="read_at"):
        record_schema(Wrong)


class Size(IntEnum):
    SMALL = 0
    VERY_LARGE = 1


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing(Record):
    """A thing with enums."""

    size: Size | None
    sizes: Mapping[str, Size]
    colour: Colour | str
    colours: tuple[Colour, ...]


def test_enums_are_text_and_come_back_as_members_unless_a_newer_version_wrote_them():
    thing = Thing(size=Size.VERY_LARGE, sizes={"a": Size.SMALL}, colour="mauve", colours=(Colour.RED,))
    document = thing.to_dict()
    assert document == {"size": "very_large", "sizes": {"a": "small"}, "colour": "mauve", "colours": ["red"]}
    assert type(document["colours"][0]) is str
    parsed = parse_record(Thing, document, read_at=0.0)
    assert parsed == thing
    assert parsed.size is Size.VERY_LARGE


def test_a_field_has_one_form_in_json():
    @dataclass(frozen=True)
    class Unclear(Record):
        value: Size | Colour

    with pytest.raises(TypeError, match="more than one form"):
        Unclear(Size.SMALL).to_dict()
