"""Fetch a file of features into one of our folders: with the files that belong to it, or from a zip archive.

GDAL sees only a path that we built and files whose content we checked: never a user's text, nor a file that
references others.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagmaster.errors import BlobsUnavailable, invalid_input
from dagmaster.geo.formats.archives import extract_dataset
from dagmaster.geo.formats.directories import fetch_directory, is_directory
from dagmaster.geo.formats.driver_rules import drivers_of_suffix, file_types
from dagmaster.geo.formats.vector_drivers import ARROW_FORMATS, VECTOR_DRIVERS
from dagmaster.geo.result_uris import safe_name
from dagmaster.geo.source_files import LocalFile, local_file, modified_at, name_in_errors
from dagmaster.geo.vector.content_checks import JSON_FORMATS, check_content
from dagmaster.geo.vector.wide_integers import quote_wide_integers
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from dagmaster.geo.formats.driver_rules import FileType
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.sdk.handler_context import HandlerContext

_RULES: Final = {**ARROW_FORMATS, **{name: rule for name, rule in VECTOR_DRIVERS.items() if rule.is_read}}
FILE_TYPES: Final = file_types(_RULES)
ZIP_SUFFIXES: Final = (".zip", ".shz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(LocalFile):
    """A local file or directory of features.

    `sha256` covers all its files; `modified` is in seconds since 1970.

    `formats` are the drivers that may read it, the usual one first; more than one if they share a suffix.
    `wide_integers`: how many integers beyond 64 bits it has, which are read as text.
    """

    formats: tuple[str, ...]
    modified: float | None
    wide_integers: int = 0

    @property
    def format(self) -> str:
        return self.formats[0]


def fetch(ctx: HandlerContext, uri: BlobUri, member: str | None = None) -> Fetched:
    """Fetch a dataset to the scratch folder; as links if it is on this machine."""
    if uri.suffix not in ZIP_SUFFIXES and uri.suffix not in FILE_TYPES:
        raise invalid_input(
            f"{uri} has no supported format: expected {', '.join(sorted(FILE_TYPES))}, or one of them in a"
            " .zip archive"
        )
    # A folder per dataset, since two may have the same name.
    folder = Path(tempfile.mkdtemp(prefix="source-", dir=ctx.scratch))
    file_type = FILE_TYPES.get(uri.suffix)
    if file_type is not None and file_type.markers and is_directory(ctx, uri):
        directory = fetch_directory(ctx, uri, file_type, folder / _file_name(uri))
        path, size, sha256, modified = directory.path, directory.size, directory.sha256, directory.modified
    else:
        path, size, sha256 = _fetch_file(ctx, uri, folder, member)
        modified = modified_at(ctx, uri)
    formats = drivers_of_suffix(_RULES, path.suffix)
    with name_in_errors(uri):
        check_content(path, formats[0], ctx.share.max_file_mb * 1_000_000)
    wide_integers = 0
    if formats[0] in JSON_FORMATS:
        try:
            wide_integers = quote_wide_integers(path)
        except OSError as error:
            raise BlobsUnavailable(
                "the file went away while it was read: check its storage or"
                f" disk{library_words('system', error)}"
            ) from error
    return Fetched(
        uri=uri,
        path=path,
        formats=formats,
        size=size,
        sha256=sha256,
        modified=modified,
        wide_integers=wide_integers,
    )


def _fetch_file(ctx: HandlerContext, uri: BlobUri, folder: Path, member: str | None) -> tuple[Path, int, str]:
    main = local_file(ctx, uri)
    if uri.suffix in ZIP_SUFFIXES:
        with name_in_errors(uri):
            extracted = extract_dataset(
                main.path, folder, ctx.share.max_file_mb * 1_000_000, FILE_TYPES, member
            )
        return extracted.path, main.size, main.sha256
    file_type = FILE_TYPES[uri.suffix]
    if file_type.markers:
        raise invalid_input(
            f"{uri} is a file: expected a directory with this suffix, or a .zip archive of it"
        )
    path = folder / _file_name(uri)
    path.symlink_to(main.path)
    size, checksums = main.size, [main.sha256]
    for suffix, (part_sha256, part_size) in _fetch_parts(ctx, uri, file_type, path).items():
        checksums.append(f"{suffix}:{part_sha256}")
        size += part_size
    sha256 = hashlib.sha256("\n".join(checksums).encode()).hexdigest() if len(checksums) > 1 else main.sha256
    return path, size, sha256


def _fetch_parts(
    ctx: HandlerContext, uri: BlobUri, file_type: FileType, path: Path
) -> dict[str, tuple[str, int]]:
    """Fetch the other files that belong to a file; return checksum and size of each."""
    stem = str(uri)[: -len(uri.suffix)]
    is_upper = str(uri).endswith(uri.suffix.upper())
    parts = {}
    for suffix in file_type.parts:
        for variant in (suffix.upper(), suffix) if is_upper else (suffix, suffix.upper()):
            # Resolve it through the storage: a symbolic link next to the file may lead elsewhere.
            part = ctx.blobs.resolve(f"{stem}{variant}")
            if ctx.blobs.find(part) is not None:
                file = local_file(ctx, part)
                path.with_suffix(suffix).symlink_to(file.path)
                parts[suffix] = file.sha256, file.size
                break
    missing = [suffix for suffix in file_type.required if suffix not in parts]
    if missing:
        raise invalid_input(
            f"{uri} is incomplete without its {' and '.join(missing)}: put"
            f" {'it' if len(missing) == 1 else 'them'}"
            f" next to it, or zip all of {', '.join((uri.suffix, *file_type.parts))}"
        )
    return parts


def _file_name(uri: BlobUri) -> str:
    """Return the name of the file, in safe letters: some drivers name a layer after it."""
    return f"{safe_name(uri.stem)}{uri.suffix}"
