"""What `make run` shows: a satellite image becomes tiles, one Cloud-Optimized GeoTIFF and a STAC item, and is checked.

python examples/landsat.py             the workflow, as `dagmaster run` runs it
python examples/landsat.py --chaos     with an orchestrator and two workers, of which one is killed in between
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SCENE = HERE / "data" / "landsat7_olinda.tif"
WORKFLOW = ROOT / "workflows" / "raster_tiled.yaml"
DAGMASTER = [sys.executable, "-m", "dagmaster"]


def main() -> int:
    """Run it, with or without a death in between, then look at what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chaos", action="store_true", help="kill a worker while it works")
    parser.add_argument("--tile-size", type=int, default=16, help="of the tiles with --chaos, in pixels")
    given = parser.parse_args()
    scene = str(SCENE.relative_to(ROOT))
    result = run_with_a_death(scene, given.tile_size) if given.chaos else run(scene)
    return check(result)


def run(scene: str) -> dict[str, Any]:
    """One command: stored, and run here and now."""
    say(f"dagmaster run {WORKFLOW.relative_to(ROOT)} -i href={scene}")
    command = [*DAGMASTER, "run", str(WORKFLOW), "-i", f"href={scene}"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("the job did not complete: see above")
    return result_of("last")


def run_with_a_death(scene: str, tile_size: int) -> dict[str, Any]:
    """An orchestrator and two workers; one worker is killed as soon as it works on tiles."""
    # A place of its own: tiles that are there already would not be made again.
    place = os.environ["DAGMASTER_BLOB_DIR"] = tempfile.mkdtemp(prefix="dagmaster-chaos-")
    say(f"export DAGMASTER_BLOB_DIR={place}")
    with services("orchestrator", "worker --queue *", "worker --queue *") as (_, victim, _):
        ask("workflows", "push", str(WORKFLOW))
        job = json.loads(
            ask("submit", "raster_tiled", "-i", f"href={scene}", "-i", f"tile_size={tile_size}", "--json")
        )["job_id"]
        say(f"job {job} is on its way; a worker will be killed while it makes tiles")
        until(lambda: tiles_of(job).get("COMPLETED", 0) >= 1, pause=0)
        victim.kill()
        print(f"  kill -9 {victim.pid}, one of the workers")
        until(lambda: status_of(job)["status"] not in {"PENDING", "RUNNING", "WAITING"})
        subprocess.run([*DAGMASTER, "jobs", "show", job], cwd=ROOT, check=False)
        say("what happened, in the words of its trail")
        lost = [line for line in ask("jobs", "events", job).splitlines() if "AttemptLost" in line]
        for line in lost:
            print(f"  {line}")
        if not lost:
            print("  nothing was lost: it had nothing in its hands just then. Try again")
        return result_of(job)


def check(result: dict[str, Any]) -> int:
    """Compare with the image that it was made from, and find it in the catalog."""
    import numpy as np
    import rasterio
    from rio_cogeo.cogeo import cog_validate

    path = Path(result["cog_url"].removeprefix("file://"))
    with rasterio.open(SCENE) as scene, rasterio.open(path) as cog:
        same_pixels = bool(np.array_equal(scene.read(), cog.read()))
        same_place = scene.crs == cog.crs and np.allclose(scene.bounds, cog.bounds)
    is_cog, errors, _ = cog_validate(str(path))
    west, south, east, north = result["bbox"]
    bbox = f"--bbox={west:.3f},{south:.3f},{east:.3f},{north:.3f}"
    found = json.loads(ask("stac", "search", bbox, "--collection", result["collection_id"], "--json"))["features"]
    is_found = result["item_id"] in [item["id"] for item in found]
    say("what came out")
    print(f"  tiles     {result['tiles']}, put together again")
    print(f"  COG       {path}")
    print(f"  item      {result['item_id']} in collection {result['collection_id']}")
    say("is it true?")
    for fine, what in [
        (same_pixels, "every pixel is the scene's"),
        (same_place, "same coordinate system, same bounds"),
        (is_cog, f"a valid Cloud-Optimized GeoTIFF {' '.join(errors)}".rstrip()),
        (is_found, f"dagmaster stac search {bbox} finds it"),
    ]:
        print(f"  {'✔' if fine else '✘'} {what}")
    return 0 if same_pixels and same_place and is_cog and is_found else 1


@contextlib.contextmanager
def services(*commands: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Services, and their end. What they say goes to a file: the screen is for the story."""
    with tempfile.TemporaryFile() as log:
        started = []
        try:
            for command in commands:
                say(f"dagmaster {command}")
                process = subprocess.Popen([*DAGMASTER, *command.split()], cwd=ROOT, stdout=log, stderr=log)
                started.append(process)
                if command == "orchestrator":
                    # It prepares the database for the others.
                    until(lambda: "orchestrator" in ask("fleet", fails=True))
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=60)


def tiles_of(job: str) -> dict[str, int]:
    """Return the number of tiles by status, and in total."""
    children = status_of(job)["nodes"].get("create_tiles", {}).get("children")
    return {} if children is None else {"total": children["total"], **children["counts"]}


def status_of(job: str) -> dict[str, Any]:
    """The job, as `jobs show --json` tells it."""
    document: dict[str, Any] = json.loads(ask("jobs", "show", job, "--json"))
    return document


def result_of(job: str) -> dict[str, Any]:
    """What a job gave, if it completed."""
    document = status_of(job)
    if document["status"] != "COMPLETED":
        raise SystemExit(f"the job ended {document['status']}: dagmaster jobs why {job}")
    result: dict[str, Any] = document["result"]
    return result


def until(is_so: Any, *, seconds: float = 120, pause: float = 1) -> None:
    """Look once a second until it is so, or without a pause."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"nothing happened for {seconds:g} seconds: is a service down?")
        time.sleep(pause)


def ask(*arguments: str, fails: bool = False) -> str:
    """Ask dagmaster something, and give its answer."""
    done = subprocess.run([*DAGMASTER, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and not fails:
        raise SystemExit(f"dagmaster {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def say(text: str) -> None:
    """A headline."""
    print(f"\n› {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
