"""`dagmaster fleet drain --wait`: what it prints, and when it ends."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.views import DrainRecord, DrainResult
from dagmaster.cli.commands import fleet_drain
from tests.unit.ui.test_fleet_pages import a_fleet, a_worker

if TYPE_CHECKING:
    from dagmaster.application.views import FleetRecord

RESULT = DrainResult(service_id="5", kind="worker", is_draining=True, held_count=2, sentence="")
SEEN = DrainRecord(requested_seconds=1.0, is_seen=True)
DRAINING = a_fleet(a_worker(is_draining=True, drain=SEEN))
DRAINED = a_fleet(a_worker(is_draining=True, drain=SEEN, running=0, prefetched=0))


class System:
    """Answers with one fleet after the other."""

    def __init__(self, *fleets: FleetRecord) -> None:
        self._fleets = iter(fleets)

    async def call(self, operation: Any) -> FleetRecord:
        assert operation.__name__ == "fleet"
        return next(self._fleets)


def wait(*fleets: FleetRecord, as_json: bool = False) -> int:
    async def no_sleep(seconds: float) -> None:
        assert seconds == fleet_drain.POLL_SECONDS

    system: Any = System(*fleets)
    return asyncio.run(fleet_drain._wait_until_drained(system, RESULT, as_json=as_json, sleep=no_sleep))


def test_what_it_holds_is_printed_when_it_changes_until_it_holds_nothing(capsys: pytest.CaptureFixture[str]):
    assert wait(DRAINING, DRAINING, DRAINED) == 0
    assert capsys.readouterr().out.splitlines() == [
        "worker h:7 drains: it holds 3 tasks",
        "worker h:7 is drained: it holds nothing, and can be stopped",
    ]


@pytest.mark.parametrize(
    ("fleet", "code", "words"),
    [
        (a_fleet(a_worker(is_alive=False)), 0, "has stopped"),
        (a_fleet(), 0, "has stopped"),
        (a_fleet(a_worker(is_alive=False, has_died=True)), 1, "died while it drained"),
        (a_fleet(a_worker()), 1, "was undrained"),
    ],
)
def test_it_ends_when_there_is_nothing_to_wait_for(
    capsys: pytest.CaptureFixture[str], fleet: FleetRecord, code: int, words: str
):
    assert wait(DRAINING, fleet) == code
    assert words in capsys.readouterr().out


def test_a_service_of_an_older_version_is_named_as_such(capsys: pytest.CaptureFixture[str]):
    unseen = DrainRecord(requested_seconds=20.0, is_seen=False)
    assert wait(a_fleet(a_worker(is_draining=True, drain=unseen)), DRAINED) == 0
    assert "a service of an older version cannot drain" in capsys.readouterr().out


def test_json_is_one_document_at_the_end(capsys: pytest.CaptureFixture[str]):
    assert wait(DRAINING, DRAINED, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["service"]["is_drained"] is True
