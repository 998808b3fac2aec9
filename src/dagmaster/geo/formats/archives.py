"""Datasets in zip archives: every entry is checked before the first is extracted, under a name of ours."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from dagmaster.errors import invalid_input
from dagmaster.geo.result_uris import safe_name
from dagmaster.text_format import format_count, library_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from dagmaster.geo.formats.driver_rules import FileType

MAX_MEMBERS: Final = 10_000
MAX_EXPANSION: Final = 200
"""How many times larger than its zip archive a dataset above 10 MB may be. Text compresses to about a
twentieth."""
SMALL_BYTES: Final = 10_000_000
_ARCHIVE_ERRORS: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError,
    EOFError, UnicodeError, ValueError,
)  # fmt: skip
GENERIC_SUFFIXES: Final = (
    ".xml",
    ".json",
    ".db",
    ".map",
    ".dat",
    ".raw",
    ".bin",
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
)
"""Also of other files, such as metadata and previews: they count only if nothing else in an archive is a
dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedDataset:
    """A dataset at `path`, which is `member` in its archive: a file or a directory; empty for its root."""

    path: Path
    member: str


def extract_dataset(
    path: Path, folder: Path, max_bytes: int, types: Mapping[str, FileType], member: str | None = None
) -> ExtractedDataset:
    """Extract the one dataset in a zip archive, with the files that belong to it.

    `member` names it if there are several. At most `max_bytes` are extracted.
    """
    with open_archive(path) as archive:
        members = check_members(
            archive, min(max_bytes, max(SMALL_BYTES, path.stat().st_size * MAX_EXPANSION))
        )
        name, suffix = _choose_dataset(members, types, member)
        # Some drivers name a layer after their file.
        target = folder / f"{safe_name(PurePosixPath(name or path.name).name.partition('.')[0])}{suffix}"
        if types[suffix].markers:
            _extract_directory(archive, members, name, target)
        else:
            _extract_files(archive, members, name, types[suffix], target)
        return ExtractedDataset(path=target, member=name)


def extract_siblings(path: Path, folder: Path, member: str, names: Collection[str]) -> dict[str, Path]:
    """Extract the files next to a member that have one of these names, in lower case; return them by name."""
    parent = PurePosixPath(member).parent
    siblings = {}
    with open_archive(path) as archive:
        for number, entry in enumerate(archive.infolist()):
            name = PurePosixPath(entry.filename)
            if name.parent == parent and name.name.lower() in names and not entry.is_dir():
                siblings[name.name] = folder / f"sibling-{number}"
                _extract(archive, entry, siblings[name.name])
    return siblings


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive. One that is damaged, also in a member that is read, is `invalid_input`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _ARCHIVE_ERRORS as error:
        raise invalid_input(
            "the file is a damaged zip archive, or of an unknown kind: create it"
            f" again{library_words('zip', error)}"
        ) from error


def check_members(archive: zipfile.ZipFile, max_bytes: int) -> list[zipfile.ZipInfo]:
    """Return the files of an archive.

    Reject names that lead out of it, links, encryption, and too much of it.
    """
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > MAX_MEMBERS:
        raise invalid_input(
            f"the zip archive has {format_count(len(members), 'file')}: at most {MAX_MEMBERS:,} are allowed."
            " Extract it first"
        )
    for member in members:
        name = member.filename[:100]
        parts = PurePosixPath(member.filename).parts
        if member.filename.startswith("/") or ".." in parts or "\\" in member.filename or ":" in parts[0]:
            raise invalid_input(
                f"the zip archive contains {name!r}, a path that leads out of it: create it again"
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise invalid_input(f"the zip archive contains a link, {name!r}: include the file itself")
        if member.flag_bits & 0x1:
            raise invalid_input(f"{name!r} in the zip archive is encrypted: create it without a password")
    size = sum(member.file_size for member in members)
    if size > max_bytes:
        raise invalid_input(
            f"the zip archive expands to {size / 1e6:,.0f} MB: at most {max_bytes / 1e6:,.0f} MB are allowed"
            " for it. Extract it first"
        )
    return members


def _choose_dataset(
    members: list[zipfile.ZipInfo], types: Mapping[str, FileType], name: str | None
) -> tuple[str, str]:
    datasets = _list_datasets(members, types)
    listed = ", ".join(list(datasets)[:10])
    if name is not None:
        datasets = {key: suffix for key, suffix in datasets.items() if key == name.rstrip("/")}
    elif len(datasets) > 1:
        specific = {key: suffix for key, suffix in datasets.items() if suffix not in GENERIC_SUFFIXES}
        datasets = specific or datasets
    if len(datasets) == 1:
        return next(iter(datasets.items()))
    if datasets:
        raise invalid_input(
            f"the zip archive has {format_count(len(datasets), 'dataset')}: name one by `member`,"
            f" or extract it: {listed}"
        )
    listed = listed or ", ".join(member.filename for member in members[:10]) or "nothing"
    missing = f"no dataset {name!r}" if name is not None else "no dataset of a supported format"
    raise invalid_input(f"the zip archive has {missing}, but {listed}")


def _list_datasets(members: list[zipfile.ZipInfo], types: Mapping[str, FileType]) -> dict[str, str]:
    """Return the datasets of an archive: their names and suffixes.

    A directory at its root has an empty name.
    """
    datasets = _list_directories(members, types)
    if "" in datasets:
        return datasets
    for member in members:
        path = PurePosixPath(member.filename)
        suffix = path.suffix.lower()
        is_hidden = member.filename.startswith("__MACOSX/") or path.name.startswith(".")
        is_file_type = suffix in types and not types[suffix].markers
        if is_file_type and not is_hidden and not _is_inside(path, datasets):
            datasets[member.filename] = suffix
    parts = {
        types[suffix].part_name(name, part).lower()
        for name, suffix in datasets.items()
        for part in types[suffix].parts
    }
    return {name: suffix for name, suffix in datasets.items() if name.lower() not in parts}


def _list_directories(members: list[zipfile.ZipInfo], types: Mapping[str, FileType]) -> dict[str, str]:
    """Return the datasets that are directories, known by markers; one at the root excludes all others."""
    directories: dict[str, str] = {}
    paths = [PurePosixPath(member.filename) for member in members]
    for suffix, file_type in types.items():
        found = [str(path.parent) for path in paths if path.name in file_type.markers]
        if "." in found:
            return {"": suffix}
        directories |= dict.fromkeys(found, suffix)
    # A group within a group is a part of the outer one.
    return {
        name: suffix
        for name, suffix in directories.items()
        if not _is_inside(PurePosixPath(name), directories)
    }


def _is_inside(path: PurePosixPath, directories: Mapping[str, str]) -> bool:
    return any(str(parent) in directories for parent in path.parents)


def _extract_directory(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str, target: Path
) -> None:
    prefix = f"{name}/" if name else ""
    for member in members:
        if member.filename.startswith(prefix):
            path = target / member.filename[len(prefix) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            _extract(archive, member, path)


def _extract_files(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str, file_type: FileType, target: Path
) -> None:
    by_name = {member.filename.lower(): member for member in members}
    _extract(archive, by_name[name.lower()], target)
    # ENVI's a.dat is described by a.hdr or by a.dat.hdr.
    missing = [
        part
        for part in file_type.required
        if by_name.keys().isdisjoint(file_type.part_name(name, one).lower() for one in (part, f"+{part}"))
    ]
    if missing:
        raise invalid_input(
            f"{name!r} in the zip archive is incomplete: its {' and '.join(missing)} is missing. Add it"
        )
    for part in file_type.parts:
        member = by_name.get(file_type.part_name(name, part).lower())
        if member is not None:
            _extract(archive, member, target.with_name(file_type.part_name(target.name, part)))


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    # zipfile reads at most the size that the member states, and verifies its checksum.
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)
