"""A nightly workflow in Python: functions are tasks, their calls are the graph.

dagmaster run examples/decorated.py:nightly -i day=2026-01-01
dagmaster workflows diagram examples/decorated.py -o nightly.svg
python examples/decorated.py
"""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from pydantic import BaseModel

from dagmaster import Future, any_of, conditional, task, workflow


class Reading(BaseModel):
    """One measurement of one station."""

    station: str
    millimetres: float


class Summary(BaseModel):
    """The rain of a day."""

    day: date
    stations: int
    millimetres: float


@task(queue="light")
def list_stations(day: date, count: int) -> list[str]:
    """Return the stations that report on a day."""
    return [f"{day:%j}-{number:02d}" for number in range(count)]


@task(queue="light", retry={"max_attempts": 3, "initial_delay_seconds": 0.1}, timeout_seconds=60)
async def read_station(station: str) -> Reading:
    """Return the reading of a station: a service, which may fail, in real life."""
    rain = random.Random(station).uniform(0, 40)  # noqa: S311 - the same number for the same station
    return Reading(station=station, millimetres=round(rain, 1))


@task(queue="light")
def summarise(day: date, readings: list[Reading]) -> Summary:
    """Return the summary of a day."""
    return Summary(
        day=day, stations=len(readings), millimetres=round(sum(reading.millimetres for reading in readings), 1)
    )


@task(queue="light")
def warn(summary: Summary) -> str:
    """Return the text of a warning."""
    return f"flood warning for {summary.day}: {summary.millimetres} mm at {summary.stations} stations"


@task(queue="light")
def archive(summary: Summary) -> str:
    """Return the text of a quiet day."""
    return f"{summary.day}: {summary.millimetres} mm, nothing to do"


@workflow(version=1, tags=["example"])
def nightly(day: Future[date], stations: int = 12, warn_above: float = 200.0) -> dict[str, Future[Any]]:
    """Read all stations of a day, and warn if it rained a lot."""
    readings = read_station.with_options(max_parallel=4).map(list_stations(day, stations))
    summary = summarise(day, readings)
    # A condition is evaluated when the job runs, so it is text.
    route = conditional(summary.millimetres, {"wet": "value > inputs.warn_above"}, default="dry", name="route")
    with route["wet"]:
        warning = warn(summary)
    with route["dry"]:
        note = archive(summary)
    return {"summary": summary, "message": any_of(warning, note)}


if __name__ == "__main__":
    print(nightly.run(day=date(2026, 1, 1)))
