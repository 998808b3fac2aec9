"""Messages between a process and its child processes: each after its length in four bytes."""

from __future__ import annotations

import struct
from typing import IO, Final

LENGTH: Final = struct.Struct(">I")


def write_frame(stream: IO[bytes], message: bytes) -> None:
    stream.write(add_length(message))
    stream.flush()


def add_length(message: bytes) -> bytes:
    """Return the frame of a message."""
    return LENGTH.pack(len(message)) + message


def read_frame(stream: IO[bytes]) -> bytes:
    """Return the next message; raise EOFError if the other side has ended."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    if len(message) < length:
        raise EOFError
    return message
