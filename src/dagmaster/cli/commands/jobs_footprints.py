"""`dagmaster jobs footprints` and `jobs map`: where the children of a job's fan-outs lie, and how they stand."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.database import job_argument, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option
from dagmaster.geo.footprints import footprint_geometry
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from dagmaster.cli.database import ReadSession
    from dagmaster.store.postgres.legacy_read_store import JobDetail, PlacedNode

_NOTHING = (
    "job {job_id} has nothing to draw: no item of its fan-outs says where it lies, and no output of their children. An"
    " item does with a `footprint`, a `bbox` or a `geometry`, an output with a `bbox` in degrees; see"
    " `dagmaster handlers show raster.generate_tiling_scheme`"
)


@click.command(epilog="Exit codes: 0 printed, 2 no such job, or nothing in it has a place, 3 no database.")
@job_argument
@data_dir_option
def footprints(job_id: str, *, data_dir: pathlib.Path | None) -> int:
    """Print the children of a job's fan-outs as GeoJSON: where each lies, and how it stands.

    A child lies where its item says, else where its output says: in a `bbox`, its own or that of its `item`.

    \b
    Examples:
      dagmaster jobs footprints last > run.geojson
    """
    _, found = _collected(data_dir, job_id)
    click.echo(json.dumps(found, ensure_ascii=False))
    return COMPLETED


@click.command("map", epilog="Exit codes: 0 drawn, 2 no such job, or nothing in it has a place, 3 no database.")
@job_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=pathlib.Path, dir_okay=False, writable=True),
    required=True,
    metavar="FILE",
    help="The picture: a PNG.",
)
@click.option("--width", type=click.IntRange(200, 8000), default=1200, show_default=True, help="Pixels.")
@data_dir_option
def draw(job_id: str, *, output: pathlib.Path, width: int, data_dir: pathlib.Path | None) -> int:
    """Draw the children of a job's fan-outs on a map, coloured by how they stand.

    \b
    Examples:
      dagmaster jobs map last -o run.png
    """
    if output.suffix.lower() != ".png":
        raise click.UsageError(f"the picture is a PNG: name it {output.with_suffix('.png')}")
    try:
        from dagmaster.cli.render.footprint_map import draw_map
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"a map needs {error.name}, which is not installed: pip install 'dagmaster[raster]'"
        ) from error
    head, found = _collected(data_dir, job_id)
    features = found["features"]
    title = f"{head.workflow_id} v{head.version}, job {head.id}"
    try:
        draw_map(features, title, width=width).save(output, format="PNG")
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror or error}") from error
    click.echo(f"{output}: {len(features):,} footprints")
    return COMPLETED


def _collected(data_dir: pathlib.Path | None, job_id: str) -> tuple[JobDetail, dict[str, Any]]:
    """The job, and its children as GeoJSON. One without any is refused, in one sentence."""

    async def work(onlooker: ReadSession) -> tuple[JobDetail, list[PlacedNode]]:
        head = await onlooker.job(job_id)
        return head, await onlooker.store.footprints(head.id)

    head, placed = on_database(data_dir, work)
    found = collection(head, placed)
    if not found["features"]:
        raise click.ClickException(_NOTHING.format(job_id=head.id))
    return head, found


def collection(head: JobDetail, placed: list[PlacedNode]) -> dict[str, Any]:
    """The children as GeoJSON. One whose footprint is none that we know is left out."""
    return {
        "type": "FeatureCollection",
        "job_id": head.id,
        "workflow": f"{head.workflow_id} v{head.version}",
        "features": [
            {
                "type": "Feature",
                "id": one.node_id,
                "geometry": geometry,
                "properties": {
                    "node_id": one.node_id,
                    "fan_out": one.fan_out,
                    "index": one.number,
                    "status": one.status,
                    "attempt": one.attempt,
                    "error": None if one.error is None else format_error(one.error),
                },
            }
            for one in placed
            if (geometry := footprint_geometry(one.footprint)) is not None
        ],
    }
