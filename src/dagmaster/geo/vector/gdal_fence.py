"""What pyogrio's GDAL may do while it reads a file of features: nothing but to read that file.

The options apply to the process, since pyogrio has none for one file; so they are set while any file is read,
and restored after the last one, for handlers that use pyogrio themselves.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final

import pyogrio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPTIONS: Final = {
    # No file is read over the network, whatever its name; and a request would go to a closed port.
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
    "GDAL_HTTP_PROXY": "http://127.0.0.1:9",
    "GDAL_HTTPS_PROXY": "http://127.0.0.1:9",
    # GML: no schema from a server or another file, no xlink.
    "GML_DOWNLOAD_SCHEMA": "NO",
    "GML_USE_SCHEMA_IMPORT": "NO",
    "GML_REGISTRY": "/dev/null",
    "GML_SKIP_RESOLVE_ELEMS": "ALL",
    # KML: no styles of other files.
    "LIBKML_EXTERNAL_STYLE": "NO",
    "LIBKML_RESOLVE_STYLE": "NO",
    # SQLite and GeoPackage: no table that is another file, no function of GDAL in a view, no extension.
    "OGR_SQLITE_LIST_VIRTUAL_OGR": "NO",
    "ALLOW_OGR_SQL_FUNCTIONS_FROM_TRIGGER_AND_VIEW": "NO",
    "OGR_SQLITE_LOAD_EXTENSIONS": None,
    # FlatGeobuf: GDAL's own Arrow reader reads columns of bytes wrongly (3.12: 32767 instead of -1).
    "OGR_FLATGEOBUF_STREAM_BASE_IMPL": "YES",
    # Above GDAL's default of 200 MB per object: the file size has its own limit.
    "OGR_GEOJSON_MAX_OBJ_SIZE": "500",
}
_lock: Final = threading.Lock()
_readers: list[dict[str, Any]] = []
"""The former values of the options, for each file that is being read."""


@contextlib.contextmanager
def fenced_gdal(folder: Path) -> Iterator[None]:
    """Restrict GDAL while a file in this folder is read. Temporary files also go there."""
    with _lock:
        options = {**_OPTIONS, "CPL_TMPDIR": str(folder)}
        _readers.append({name: pyogrio.get_gdal_config_option(name) for name in options})
        pyogrio.set_gdal_config_options(options)
    try:
        yield
    finally:
        with _lock:
            # The first reader saw the options as they were before.
            former = _readers[0]
            _readers.pop()
            if not _readers:
                pyogrio.set_gdal_config_options(former)
