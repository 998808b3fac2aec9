"""Write a Cloud-Optimized GeoTIFF with GDAL's own driver: what it costs is what GDAL costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import rasterio.shutil
from rio_cogeo.cogeo import cog_validate

from dagmaster.handlers.gdal import invalid

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.ports.services import Share

Compression = Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"]

_WITH_PREDICTOR: Final = ("DEFLATE", "ZSTD", "LZW")


@dataclass(frozen=True, slots=True, kw_only=True)
class CogOptions:
    """How a COG is made. `resampling` is of its overviews: average for measurements, nearest or mode for classes."""

    compression: Compression = "DEFLATE"
    level: int | None = None
    tile_size: int = 512
    resampling: str = "average"

    def creation(self, share: Share) -> dict[str, Any]:
        """The options of GDAL's driver."""
        options: dict[str, Any] = {
            "COMPRESS": self.compression,
            "BLOCKSIZE": self.tile_size,
            "BIGTIFF": "IF_SAFER",
            "OVERVIEW_RESAMPLING": self.resampling.upper(),
            "NUM_THREADS": share.threads,
        }
        if self.compression in _WITH_PREDICTOR:
            options["PREDICTOR"] = "YES"
        if self.level is not None:
            options["LEVEL"] = self.level
        return options


def write_cog(source: DatasetReader | Any, to: Path, options: CogOptions, share: Share) -> None:
    """Write all of an open raster (or a WarpedVRT) as a COG. It is read and written block by block."""
    rasterio.shutil.copy(source, str(to), driver="COG", **options.creation(share))


def check_cog(path: Path) -> None:
    """Refuse to publish what is not a COG."""
    valid, errors, _ = cog_validate(str(path), strict=False)
    if not valid:
        raise invalid(f"what was written is not a Cloud-Optimized GeoTIFF: {'; '.join(errors)}")
