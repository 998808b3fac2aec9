"""Notice files that change, by their times: no system service is needed, and network folders work, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SUFFIXES: Final = frozenset({".py", ".yaml", ".yml"})


class Changes(NamedTuple):
    """Files that are new or have other content, and files that are gone."""

    changed: list[Path]
    removed: list[Path]

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


class FileWatch:
    """Watches Python and YAML files: named ones, those in named folders, and Python files of packages."""

    def __init__(self, paths: Iterable[Path], packages: Iterable[Path] = ()) -> None:
        self._paths = list(dict.fromkeys(paths))
        self._packages = list(dict.fromkeys(packages))
        self._states = self._scan()

    @property
    def files(self) -> list[Path]:
        """Return the files as they were seen last."""
        return list(self._states)

    def poll(self) -> Changes:
        """Return what changed since the last call."""
        before, self._states = self._states, self._scan()
        changed = [file for file, state in self._states.items() if before.get(file) != state]
        return Changes(changed, [file for file in before if file not in self._states])

    def _scan(self) -> dict[Path, tuple[int, int, int]]:
        states = {}
        for file in self._list():
            try:
                status = file.stat()
            except OSError:
                continue
            states[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return states

    def _list(self) -> Iterator[Path]:
        for path in self._paths:
            yield from list_folder(path) if path.is_dir() else [path]
        for package in self._packages:
            yield from sorted(package.rglob("*.py"))


def list_folder(folder: Path) -> list[Path]:
    """Return the Python and YAML files of a folder, without those in its folders."""
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
