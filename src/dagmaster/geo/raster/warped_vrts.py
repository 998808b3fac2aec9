"""VRTs that warp a raster to a grid: GDAL computes their pixels block by block as they are read.

They say what `gdalwarp` would do. rasterio's WarpedVRT writes the same XML, but warps by a geotransform only
when a grid is given, takes any alpha band for the mask, and has one nodata value for all bands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from dagmaster.geo.raster.vrts import (
    add_band,
    dataset_element,
    format_geotransform,
    format_number,
    is_alpha_last,
)

if TYPE_CHECKING:
    from affine import Affine
    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.georeferences import Georeference
    from dagmaster.geo.raster.grids import Grid

_ALGORITHMS: Final = {
    "nearest": "NearestNeighbour",
    "bilinear": "Bilinear",
    "cubic": "Cubic",
    "cubic_spline": "CubicSpline",
    "lanczos": "Lanczos",
    "average": "Average",
    "mode": "Mode",
    "max": "Maximum",
    "min": "Minimum",
    "med": "Median",
    "q1": "Quartile1",
    "q3": "Quartile3",
    "sum": "Sum",
    "rms": "RootMeanSquare",
}
_BLOCK_PIXELS: Final = 512


def warp_to_xml(
    raster: DatasetReader,
    georeference: Georeference,
    grid: Grid,
    *,
    resampling: str,
    tolerance: float,
    nodata: float | None,
    add_mask: bool,
) -> str:
    """Return the VRT that warps a raster to a grid.

    `nodata` is the value of pixels without a source pixel. With `add_mask`, one more band holds the mask.
    `tolerance` is the position error in pixels; 0 is exact.
    """
    root = dataset_element(grid, subClass="VRTWarpedDataset")
    for band in raster.indexes:
        texts = {"NoDataValue": None if nodata is None else format_number(nodata, raster.dtypes[band - 1])}
        add_band(root, band, raster.dtypes[band - 1], texts, subClass="VRTWarpedRasterBand")
    if add_mask:
        texts = {"ColorInterp": "Alpha"}
        add_band(root, raster.count + 1, "uint8", texts, subClass="VRTWarpedRasterBand")
    for name in ("BlockXSize", "BlockYSize"):
        SubElement(root, name).text = str(_BLOCK_PIXELS)
    options = SubElement(root, "GDALWarpOptions")
    SubElement(options, "ResampleAlg").text = _ALGORITHMS[resampling]
    for name, value in (
        ("UNIFIED_SRC_NODATA", "YES"),
        ("INIT_DEST", "0" if nodata is None else "NO_DATA"),
        ("ERROR_OUT_IF_EMPTY_SOURCE_WINDOW", "FALSE"),
    ):
        SubElement(options, "Option", name=name).text = value
    SubElement(options, "SourceDataset", relativeToVRT="0").text = raster.name
    _add_transformer(SubElement(options, "Transformer"), georeference, grid, tolerance)
    _add_bands(options, raster, nodata, add_mask=add_mask)
    return tostring(root, encoding="unicode")


def _add_bands(options: Element, raster: DatasetReader, nodata: float | None, *, add_mask: bool) -> None:
    alpha = raster.count if is_alpha_last(raster) else None
    bands = SubElement(options, "BandList")
    for band in raster.indexes:
        if band == alpha:
            continue
        mapping = SubElement(bands, "BandMapping", src=str(band), dst=str(band))
        for prefix, value in (("Src", raster.nodatavals[band - 1]), ("Dst", nodata)):
            if value is not None:
                SubElement(mapping, f"{prefix}NoDataReal").text = format_number(
                    value, raster.dtypes[band - 1]
                )
                SubElement(mapping, f"{prefix}NoDataImag").text = "0"
    if alpha is not None:
        SubElement(options, "SrcAlphaBand").text = str(alpha)
    if alpha is not None or add_mask:
        SubElement(options, "DstAlphaBand").text = str(alpha or raster.count + 1)


def _add_transformer(parent: Element, georeference: Georeference, grid: Grid, tolerance: float) -> None:
    if tolerance > 0:
        approximate = SubElement(parent, "ApproxTransformer")
        SubElement(approximate, "MaxError").text = repr(tolerance)
        parent = SubElement(approximate, "BaseTransformer")
    transformer = SubElement(parent, "GenImgProjTransformer")
    if georeference.affine is not None:
        _add_geotransforms(transformer, "Src", georeference.affine)
    elif georeference.kind == "gcps":
        _add_gcps(transformer, georeference)
    else:
        _add_rpcs(transformer, georeference)
    _add_geotransforms(transformer, "Dst", grid.affine)
    if georeference.crs != grid.crs:
        reprojection = SubElement(SubElement(transformer, "ReprojectTransformer"), "ReprojectionTransformer")
        SubElement(reprojection, "SourceSRS").text = georeference.crs.to_wkt()
        SubElement(reprojection, "TargetSRS").text = grid.crs.to_wkt()


def _add_geotransforms(parent: Element, side: str, affine: Affine) -> None:
    SubElement(parent, f"{side}GeoTransform").text = format_geotransform(affine)
    SubElement(parent, f"{side}InvGeoTransform").text = format_geotransform(~affine)


def _add_gcps(parent: Element, georeference: Georeference) -> None:
    transformer = SubElement(SubElement(parent, "SrcGCPTransformer"), "GCPTransformer")
    # The highest order that the number of points allows, as `gdalwarp` chooses it.
    SubElement(transformer, "Order").text = "0"
    SubElement(transformer, "Reversed").text = "0"
    points = SubElement(transformer, "GCPList")
    for number, point in enumerate(georeference.gcps, 1):
        position = {"Pixel": point.col, "Line": point.row, "X": point.x, "Y": point.y}
        texts = {name: repr(float(value)) for name, value in position.items()}
        SubElement(points, "GCP", {"Id": str(number), **texts})


def _add_rpcs(parent: Element, georeference: Georeference) -> None:
    transformer = SubElement(SubElement(parent, "SrcRPCTransformer"), "RPCTransformer")
    texts = {"Reversed": "0", "HeightOffset": repr(georeference.ground_height), "PixErrThreshold": "0.1"}
    if georeference.dem is not None:
        texts |= {"DEMPath": georeference.dem, "DEMInterpolation": "bilinear"}
    for name, text in texts.items():
        SubElement(transformer, name).text = text
    metadata = SubElement(transformer, "Metadata")
    rpcs: Any = georeference.rpcs
    for key, value in rpcs.to_gdal().items():
        SubElement(metadata, "MDI", key=key).text = str(value)
