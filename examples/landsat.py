"""The demo of `make run`: convert a satellite image to tiles, one Cloud-Optimized GeoTIFF and a STAC item; check them.

python examples/landsat.py             the workflow, as `dagmaster run` runs it
python examples/landsat.py --chaos     with an orchestrator and two workers, one of which is killed
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
    """Run the workflow, with or without killing a worker, then check the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chaos", action="store_true", help="kill a worker while it works")
    parser.add_argument("--tile-size", type=int, default=16, help="the tile size with --chaos, in pixels")
    options = parser.parse_args()
    scene = str(SCENE.relative_to(ROOT))
    result = run_and_kill_worker(scene, options.tile_size) if options.chaos else run(scene)
    return check(result)


def run(scene: str) -> dict[str, Any]:
    """Run the workflow with one command."""
    print_heading(f"dagmaster run {WORKFLOW.relative_to(ROOT)} -i href={scene}")
    command = [*DAGMASTER, "run", str(WORKFLOW), "-i", f"href={scene}"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("the job did not complete: see above")
    return load_result("last")


def run_and_kill_worker(scene: str, tile_size: int) -> dict[str, Any]:
    """Run an orchestrator and two workers; kill one worker as soon as it processes tiles."""
    require_no_orchestrator()
    # A separate directory: existing tiles would not be written again.
    blob_dir = os.environ["DAGMASTER_BLOB_DIR"] = tempfile.mkdtemp(prefix="dagmaster-chaos-")
    print_heading(f"export DAGMASTER_BLOB_DIR={blob_dir}")
    with services("orchestrator", "worker --queue *", "worker --queue *") as processes:
        victim = processes[1]
        run_cli("workflows", "push", str(WORKFLOW))
        job = json.loads(
            run_cli("submit", "raster_tiled", "-i", f"href={scene}", "-i", f"tile_size={tile_size}", "--json")
        )["job_id"]
        print_heading(f"submitted job {job}; a worker will be killed while it writes tiles")
        watch = subprocess.Popen(
            [*DAGMASTER, "jobs", "watch", job], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        processes.append(watch)
        if wait_for_tile(Path(blob_dir, "silver"), watch):
            victim.kill()
            print(f"  kill -9 {victim.pid}, one of the workers")
        watch.wait()
        subprocess.run([*DAGMASTER, "jobs", "show", job], cwd=ROOT, check=False)
        print_heading("what happened, from the events of the job")
        lost = [line for line in run_cli("jobs", "events", job).splitlines() if "AttemptLost" in line]
        for line in lost:
            print(f"  {line}")
        if not lost:
            print("  no attempt was lost: the worker had no task at that moment. Try again")
        return load_result(job)


def require_no_orchestrator() -> None:
    """Exit if an orchestrator is alive: its workers would execute tasks of the job, with another blob directory."""
    alive = [one for one in json.loads(run_cli("fleet", "--json"))["orchestrators"] if one["is_alive"]]
    if alive:
        raise SystemExit(
            f"an orchestrator (process {alive[0]['pid']} on {alive[0]['host']}) runs on the same database, as"
            " `dagmaster dev` starts one: it would share the job. Stop it, or name an empty directory for this demo:"
            " export DAGMASTER_DATA_DIR=…"
        )


def wait_for_tile(folder: Path, watch: subprocess.Popen[bytes]) -> bool:
    """Wait for the first tile in a folder; return whether it was written before `jobs watch` ended."""
    wait_until(lambda: any(folder.rglob("*.tif")) or watch.poll() is not None)
    return watch.poll() is None


def check(result: dict[str, Any]) -> int:
    """Compare the COG with its source image, and search for its item in the catalog."""
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
    items = json.loads(run_cli("stac", "search", bbox, "--collection", result["collection_id"], "--json"))["features"]
    is_found = result["item_id"] in [item["id"] for item in items]
    print_heading("result")
    print(f"  tiles     {result['tiles']}, merged again")
    print(f"  COG       {path}")
    print(f"  item      {result['item_id']} in collection {result['collection_id']}")
    print_heading("checks")
    for is_ok, label in [
        (same_pixels, "every pixel equals the scene"),
        (same_place, "same CRS, same bounds"),
        (is_cog, f"a valid Cloud-Optimized GeoTIFF {' '.join(errors)}".rstrip()),
        (is_found, f"dagmaster stac search {bbox} finds it"),
    ]:
        print(f"  {'✔' if is_ok else '✘'} {label}")
    return 0 if same_pixels and same_place and is_cog and is_found else 1


@contextlib.contextmanager
def services(*commands: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run services in the background and stop them. Their output goes to a file."""
    with tempfile.TemporaryFile() as log:
        started = []
        try:
            for command in commands:
                print_heading(f"dagmaster {command}")
                process = subprocess.Popen([*DAGMASTER, *command.split()], cwd=ROOT, stdout=log, stderr=log)
                started.append(process)
                if command == "orchestrator":
                    # It prepares the database for the workers.
                    wait_until_ready(process, log.fileno())
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=60)


def wait_until_ready(process: subprocess.Popen[bytes], log: int) -> None:
    """Wait until a service logs that it is ready; exit with its log if it ends."""

    def read_log() -> bytes:
        return os.pread(log, 1_000_000, 0)

    wait_until(lambda: b"is ready" in read_log() or process.poll() is not None)
    if process.poll() is not None:
        raise SystemExit(f"the service ended: {read_log().decode(errors='replace').strip()}")


def load_job(job: str) -> dict[str, Any]:
    """Return the job as `jobs show --json` prints it."""
    document: dict[str, Any] = json.loads(run_cli("jobs", "show", job, "--json"))
    return document


def load_result(job: str) -> dict[str, Any]:
    """Return the result of a completed job; exit if it did not complete."""
    document = load_job(job)
    if document["status"] != "COMPLETED":
        raise SystemExit(f"the job ended {document['status']}: dagmaster jobs why {job}")
    result: dict[str, Any] = document["result"]
    return result


def wait_until(condition: Any, *, seconds: float = 120, pause: float = 0.05) -> None:
    """Poll a condition until it holds; exit after the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"timeout after {seconds:g} seconds: is a service down?")
        time.sleep(pause)


def run_cli(*arguments: str) -> str:
    """Run a dagmaster command and return its output."""
    done = subprocess.run([*DAGMASTER, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dagmaster {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def print_heading(text: str) -> None:
    """Print a heading."""
    print(f"\n› {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
