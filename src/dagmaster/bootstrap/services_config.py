"""The services of handlers as configuration: JSON that child processes get, and open."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

from dagmaster.bootstrap import blob_directory
from dagmaster.host.private_files import own_folder
from dagmaster.worker.lazy_services import ServicesConfig

if TYPE_CHECKING:
    from dagmaster.ports.handler_services import WorkerServices
    from dagmaster.settings import Settings


def handler_services_config(
    settings: Settings, blob_dir: pathlib.Path | None = None, *, processes: int = 1, is_alone: bool = True
) -> ServicesConfig:
    """Return the configuration of handler services as JSON: it is sent to child processes.

    `blob_dir` is the directory of large outputs. `is_alone`: only this machine uses the database, so handlers
    may read files of the working directory.
    """
    from dagmaster.ports.storage import ZONES
    from dagmaster.sdk.scratch_dirs import ensure_private_dir
    from dagmaster.settings import PARAM_DEFAULTS

    blob_dir = blob_dir or blob_directory(settings)
    # Before zones are made in it.
    own_folder(blob_dir, is_named=settings.blob_dir is not None)
    folder = f"file://{os.path.abspath(blob_dir)}"  # noqa: PTH100 - a zone may not contain '..', a folder may
    roots = settings.file_roots or ((pathlib.Path.cwd(),) if is_alone else ())
    scratch = settings.scratch_dir
    if scratch is None:
        # Any user of the machine can create this path before us.
        scratch = pathlib.Path(tempfile.gettempdir()) / f"dagmaster-scratch-{os.getuid()}"
        ensure_private_dir(scratch)
    tables, catalog, pool = settings.tables_url, settings.catalog_url, settings.handler_pool_url
    return ServicesConfig(
        "dagmaster.bootstrap.services_config:open_services",
        {
            "zones": {zone: getattr(settings, f"{zone}_url") or f"{folder}/{zone}" for zone in ZONES},
            # Later tasks read files that raster.blob_to_mount copied.
            "roots": [str(root.absolute()) for root in (*roots, scratch / "mount")],
            "containers": list(settings.storage_containers),
            "closed": [settings.outputs_url] if settings.outputs_url else [],
            "catalog": str(blob_dir.absolute() / "catalog")
            if catalog is None
            else catalog.get_secret_value(),
            "tables": str(blob_dir.absolute() / "tables") if tables is None else tables.get_secret_value(),
            "pool_url": None if pool is None else pool.get_secret_value(),
            "pool_size": settings.handler_pool_size,
            "scratch": str(scratch.absolute()),
            "threads": max(1, (os.cpu_count() or 1) // processes),
            "cache_mb": settings.raster_cache_mb,
            "max_pixels": settings.raster_max_pixels,
            "max_file_mb": settings.raster_max_file_mb,
            "param_defaults": {
                name: value for name in PARAM_DEFAULTS if (value := getattr(settings, name)) is not None
            },
        },
    )


def open_services(config: dict[str, Any]) -> WorkerServices:
    """Open handler services in the process that uses them, each on first use."""
    from dagmaster.adapters.handler_services import OpenServices

    return OpenServices(config)
