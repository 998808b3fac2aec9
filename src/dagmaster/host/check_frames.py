"""JSON between a server and its check processes: each message after its length in four bytes."""

from __future__ import annotations

import struct
from typing import IO, Final

_LENGTH: Final = struct.Struct(">I")


def write_frame(stream: IO[bytes], message: bytes) -> None:
    stream.write(_LENGTH.pack(len(message)) + message)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Return the next message; raise EOFError if the other side has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    message = stream.read(length)
    if len(message) < length:
        raise EOFError
    return message
