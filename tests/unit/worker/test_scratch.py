"""Folders that tasks leave behind."""

from __future__ import annotations

import os
import subprocess
import sys

from dagmaster.ports.handler import HandlerContext
from dagmaster.worker.scratch import forget, sweep


def test_a_sweep_takes_what_the_dead_left_and_nothing_else(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    for name in (str(ended.pid), str(os.getpid()), "notes"):
        (tmp_path / name / "task-1").mkdir(parents=True)
        (tmp_path / name / "task-1" / "half.tif").write_bytes(b"1")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([str(os.getpid()), "notes"])
    forget(tmp_path, os.getpid())
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_scratch_folder_that_is_not_there_is_swept_and_forgotten_in_peace(tmp_path):
    sweep(tmp_path / "nothing")
    forget(tmp_path / "nothing", 1)


def test_the_folder_of_an_attempt_is_its_own_and_gone_when_it_is_over(tmp_path):
    from dagmaster.ports.services import Share

    class Lent:
        share = Share(scratch=tmp_path)

    one, two = (HandlerContext(services=Lent()) for _ in range(2))  # type: ignore[arg-type]
    assert one.scratch != two.scratch
    assert one.scratch.parent == tmp_path / str(os.getpid())
    (one.scratch / "x").write_bytes(b"1")
    gone = one.scratch
    one.close()
    one.close()
    assert not gone.exists()
    assert two.scratch.exists()
