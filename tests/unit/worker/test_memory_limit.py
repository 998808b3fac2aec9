"""The memory limit of a worker: where it comes from, and what ends when it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import psutil
import pytest

from dagmaster.errors import SettingsInvalid
from dagmaster.worker.memory_limit import (
    MemoryUse,
    check_memory_limit,
    default_limit_mb,
    memory_use_above,
    relieve,
)

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTE = 1024 * 1024


def limit_of(folder: Path, groups: str, **limits: str) -> int:
    """Write control groups; two underscores stand for a slash."""
    for place, text in limits.items():
        file = folder / "root" / place.replace("__", "/")
        file = file.with_name("memory.max")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (folder / "groups").write_text(groups)
    return default_limit_mb(folder / "groups", folder / "root")


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {"memory_max": str(1000 * MEGABYTE)}, 900),
        ("0::/a/b\n", {"a__memory_max": str(100 * MEGABYTE), "a__b__memory_max": "max"}, 90),
        ("0::/not/here\n", {"memory_max": str(1000 * MEGABYTE)}, 900),
        ("0::/\n", {"memory_max": "max"}, 0),
        ("0::/\n", {}, 0),
    ],
)
def test_the_default_is_a_share_of_the_smallest_limit_of_the_control_groups(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int
):
    assert limit_of(tmp_path, groups, **limits) == expected


@pytest.mark.parametrize(("limit", "expected"), [(200 * MEGABYTE, 180), (9223372036854771712, 0)])
def test_control_groups_of_version_1_are_read(tmp_path: Path, limit: int, expected: int):
    file = tmp_path / "root" / "memory" / "docker" / "memory.limit_in_bytes"
    file.parent.mkdir(parents=True)
    file.write_text(f"{limit}\n")
    assert limit_of(tmp_path, "4:cpu,cpuacct:/\n3:memory:/docker\n") == expected


def test_without_control_groups_there_is_no_limit(tmp_path: Path):
    assert default_limit_mb(tmp_path / "none", tmp_path) == 0


@pytest.mark.parametrize(
    ("children", "killed"),
    [({5: 600, 6: 300}, 5), ({5: 200, 6: 300}, None), ({}, None), ({7: 900}, None)],
)
def test_the_largest_handler_process_ends_or_else_the_worker(children: dict[int, int], killed: int | None):
    processes, recycling = Mock(pids=lambda: [5, 6]), Mock()
    use = MemoryUse(400 * MEGABYTE, {pid: size * MEGABYTE for pid, size in children.items()})
    relieve(use, 500 * MEGABYTE, processes, recycling)
    assert [call.args[0] for call in processes.end_for_memory.call_args_list] == [killed] * (
        killed is not None
    )
    assert recycling.on_memory.called == (killed is None)


class Process:
    """A process whose pages are shared with others, perhaps."""

    def __init__(self, pid: int, rss: int, pss: int | None, children: tuple[Process, ...] = ()) -> None:
        self.pid, self.rss, self.pss, self._children = pid, rss * MEGABYTE, pss, children
        self.asked = 0

    def children(self, recursive: bool = False) -> list[Process]:
        return list(self._children)

    def memory_info(self) -> Mock:
        return Mock(rss=self.rss)

    def memory_full_info(self) -> Mock:
        self.asked += 1
        if self.pss is None:
            raise psutil.AccessDenied(self.pid)
        return Mock(pss=self.pss * MEGABYTE)


def forked(*, own: int, child: int | None) -> Process:
    """Return a process of 300 MB with two forked children of 300 MB."""
    return Process(1, 300, own, tuple(Process(pid, 300, child) for pid in (5, 6)))


@pytest.mark.parametrize(("child", "total"), [(100, None), (200, 500), (None, 700)])
def test_pages_that_processes_share_count_once(
    monkeypatch: pytest.MonkeyPatch, child: int | None, total: int | None
):
    process = forked(own=100, child=child)
    monkeypatch.setattr(psutil, "Process", lambda: process)
    use = memory_use_above(500 * MEGABYTE)
    assert (None if use is None else use.total // MEGABYTE) == total


def test_shares_of_pages_are_read_only_if_the_resident_memory_is_above_the_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    process = forked(own=100, child=100)
    monkeypatch.setattr(psutil, "Process", lambda: process)
    assert memory_use_above(1000 * MEGABYTE) is None
    assert process.asked == 0


def test_a_limit_below_what_an_idle_worker_uses_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(psutil, "Process", lambda: Process(1, 150, 120))
    check_memory_limit(0)
    check_memory_limit(134)
    with pytest.raises(SettingsInvalid, match=r"is 133 MB .* uses 120 MB before its first task"):
        check_memory_limit(133)
    # Resident memory alone is no reason.
    monkeypatch.setattr(psutil, "Process", lambda: Process(1, 150, 50))
    check_memory_limit(133)


def test_the_memory_of_this_process_is_measured():
    use = memory_use_above(0)
    assert use is not None
    assert 0 < use.own <= psutil.Process().memory_info().rss
