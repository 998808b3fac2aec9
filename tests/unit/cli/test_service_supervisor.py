"""How `dagmaster dev` restarts what has died."""

from __future__ import annotations

from dagmaster.cli.render.text import format_exit
from dagmaster.cli.service_supervisor import restart_delay


def test_a_process_that_keeps_dying_is_restarted_less_often():
    assert [restart_delay(deaths) for deaths in (1, 2, 3, 5, 6, 1000)] == [1, 2, 4, 16, 30, 30]


def test_the_exit_of_a_recycled_worker_is_told_with_its_reason():
    assert format_exit(80) == "could not stop a handler and exited with code 80"
    assert format_exit(81) == "reached its memory limit and exited with code 81"
    assert format_exit(1) == "exited with code 1"
    assert format_exit(-9) == "was killed by SIGKILL"
