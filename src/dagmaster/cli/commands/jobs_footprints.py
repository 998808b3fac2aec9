"""`dagmaster jobs footprints` and `jobs map`: footprints and statuses of the children of fan-outs."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import job_argument, on_system
from dagmaster.sdk.command_line import data_dir_option
from dagmaster.sdk.terminal import echo, echo_json
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from dagmaster.application.views import FootprintsView
    from dagmaster.client.system import System

_NO_FOOTPRINTS = (
    "job {job_id} has no footprints: neither the items of its fan-outs nor the outputs of their children"
    " have one. The key of an item is `footprint`, `bbox` or `geometry`, that of an output `bbox` (in"
    " degrees); see `dagmaster handlers show raster.generate_tiling_scheme`"
)


@click.command(epilog="Exit codes: 0 printed, 2 no such job, or it has no footprints, 3 no database.")
@job_argument
@data_dir_option
def footprints(job_id: str, *, data_dir: pathlib.Path | None) -> int:
    """Print the children of a job's fan-outs as GeoJSON: the footprint and the status of each.

    The footprint of a child is that of its item, else that of its output: its `bbox`, or the `bbox` of its
    `item`.

    \b
    Examples:
      dagmaster jobs footprints last > run.geojson
    """
    view = _read(data_dir, job_id)
    echo_json(view.to_dict())
    return COMPLETED


@click.command("map", epilog="Exit codes: 0 drawn, 2 no such job, or it has no footprints, 3 no database.")
@job_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=pathlib.Path, dir_okay=False, writable=True),
    required=True,
    metavar="FILE",
    help="The PNG file to write.",
)
@click.option(
    "--width", type=click.IntRange(200, 8000), default=1200, show_default=True, help="The width in pixels."
)
@data_dir_option
def draw(job_id: str, *, output: pathlib.Path, width: int, data_dir: pathlib.Path | None) -> int:
    """Draw the children of a job's fan-outs on a map, coloured by status.

    \b
    Examples:
      dagmaster jobs map last -o run.png
    """
    if output.suffix.lower() != ".png":
        raise click.UsageError(f"the map is a PNG image: name it {output.with_suffix('.png')}")
    try:
        from dagmaster.cli.render.footprint_map import draw_map
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"a map needs {error.name}, which is not installed: pip install 'dagmaster[raster]'"
        ) from error
    view = _read(data_dir, job_id)
    features = view.to_dict()["features"]
    title = f"{view.workflow_id} v{view.version}, job {view.job_id}"
    try:
        draw_map(features, title, width=width).save(output, format="PNG")
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror or error}") from error
    echo(f"{output}: {format_count(len(features), 'footprint')}")
    return COMPLETED


def _read(data_dir: pathlib.Path | None, job_id: str) -> FootprintsView:
    """Read the footprints of a job; raise if it has none."""

    async def query(system: System) -> FootprintsView:
        from dagmaster.application.queries.jobs import MAX_FOOTPRINTS, job_footprints

        page = await system.call(job_footprints, job_id, limit=MAX_FOOTPRINTS)
        features = list(page.features)
        while page.next_cursor is not None:
            # `last` may be another job by now.
            page = await system.call(
                job_footprints, page.job_id, cursor=page.next_cursor, limit=MAX_FOOTPRINTS
            )
            features += page.features
        return replace(page, features=tuple(features))

    view = on_system(data_dir, query)
    if not view.features:
        raise click.ClickException(_NO_FOOTPRINTS.format(job_id=view.job_id))
    return view
