"""Which published contracts count."""

from __future__ import annotations

from typing import Any

from dagmaster.records.handlers import HandlerRecord, usable


def record(name: str, **more: Any) -> HandlerRecord:
    aliases = more.pop("aliases", [])
    return HandlerRecord.of_definition(
        {"aliases": aliases},
        name=name,
        version="1",
        published_at=0.0,
        workers=0,
        other_versions=(),
        **more,
    )


def test_an_alias_of_the_installation_wins_over_the_contract_of_a_caller_and_not_over_its_own_names():
    records = [
        record("h", aliases=["old", "installed"]),
        record("installed"),
        record("old", owner="key:a", is_trusted=True),
        record("own", owner="key:a", is_trusted=False),
        record("etl.load", owner="key:a", is_trusted=False),
    ]
    assert [one.name for one in usable(records)] == ["h", "installed", "own"]
