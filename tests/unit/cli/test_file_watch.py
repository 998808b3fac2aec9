"""Files that change are noticed: by content, in folders, and when they are replaced as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dagmaster.cli.dev_reload import FileWatch

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_changed_at_first_and_a_change_is_reported_once(tmp_path: Path):
    file = tmp_path / "flow.py"
    file.write_text("1")
    watch = FileWatch([file])
    assert not watch.poll()
    file.write_text("22")
    assert watch.poll() == ([file], [])
    assert not watch.poll()


def test_a_file_of_the_same_size_with_another_time_has_changed(tmp_path: Path):
    file = tmp_path / "flow.yaml"
    file.write_text("1")
    watch = FileWatch([file])
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert watch.poll().changed == [file]


def test_a_file_that_an_editor_replaced_has_changed(tmp_path: Path):
    file, other = tmp_path / "flow.yml", tmp_path / "flow.yml.tmp"
    file.write_text("1")
    watch = FileWatch([file])
    other.write_text("2")
    os.utime(other, ns=(0, file.stat().st_mtime_ns))
    other.rename(file)
    assert watch.poll() == ([file], [])


def test_new_and_removed_files_of_a_folder_are_reported(tmp_path: Path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.py"
    old.write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    (tmp_path / "inner").mkdir()
    watch = FileWatch([tmp_path])
    assert watch.files == [old]
    new.write_text("1")
    old.unlink()
    (tmp_path / "notes.txt").write_text("22")
    (tmp_path / "inner" / "deep.py").write_text("1")
    assert watch.poll() == ([new], [old])


def test_all_python_files_of_a_package_are_watched(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    deep = tmp_path / "inner" / "deep.py"
    deep.write_text("1")
    watch = FileWatch([], [tmp_path])
    deep.write_text("22")
    assert watch.poll().changed == [deep]
