"""How many tasks of each queue a worker finished in the last minute."""

from __future__ import annotations

from dagmaster.worker.queue_throughput import WINDOW_SECONDS, QueueThroughput


def test_tasks_count_for_a_minute_by_their_queue():
    throughput = QueueThroughput()
    for queue in ("a", "a", "b"):
        throughput.add(queue)
    assert throughput.last_minute(100.0) == {"a": 2, "b": 1}
    throughput.add("b")
    assert throughput.last_minute(130.0) == {"a": 2, "b": 2}
    # What was counted at 100 is a minute old.
    assert throughput.last_minute(100.0 + WINDOW_SECONDS) == {"b": 1}
    assert throughput.last_minute(130.0 + WINDOW_SECONDS) == {}


def test_a_heartbeat_keeps_no_more_than_a_minute():
    throughput = QueueThroughput()
    for second in range(0, 600, 2):
        throughput.add("q")
        assert throughput.last_minute(float(second))["q"] <= 31
    assert len(throughput._earlier) <= 32
