"""What check processes of the tests call: functions that end, and functions that do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue


def add(a: int, b: int) -> JsonValue:
    print("not an answer")  # noqa: T201 - it must not get between the answers
    return a + b


def pid() -> JsonValue:
    return os.getpid()


def names_of_environment() -> JsonValue:
    return [*os.environ]


def spin() -> JsonValue:
    while True:
        pass


def take_memory() -> JsonValue:
    return len([bytearray(10_000_000) for _ in range(1_000)])


def fail() -> JsonValue:
    raise KeyError("what was wrong")


def die() -> JsonValue:
    os._exit(3)


def wait(started: str, released: str) -> JsonValue:
    """Tell by one pipe that it runs, and end when the other one is opened."""
    Path(started).write_text("started", encoding="ascii")
    return Path(released).read_text(encoding="ascii")
