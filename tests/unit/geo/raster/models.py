"""A tiny ONNX model, written byte by byte: the mean of 3 x 3 pixels, in two channels (the mean, and its negative)."""

from __future__ import annotations

import struct
from typing import Any

FLOAT = 1
INTS = 7


def mean_model(*, bands: int = 1, side: int | None = None) -> bytes:
    """Batch, bands, rows, columns in; batch, 2, rows, columns out. `side`: it takes windows of one size only."""
    weights = [sign / 9 for sign in (1.0, -1.0) for _ in range(bands * 9)]
    tensor = b"".join(_number(1, size) for size in (2, bands, 3, 3)) + _number(2, FLOAT)
    tensor += _text(8, "weights") + _bytes(9, struct.pack(f"<{len(weights)}f", *weights))
    pads = _text(1, "pads") + _number(20, INTS) + b"".join(_number(8, 1) for _ in range(4))
    node = _text(1, "pixels") + _text(1, "weights") + _text(2, "means") + _text(4, "Conv") + _bytes(5, pads)
    size: list[Any] = ["rows" if side is None else side, "columns" if side is None else side]
    graph = _bytes(1, node) + _text(2, "mean") + _bytes(5, tensor)
    graph += _bytes(11, _value("pixels", [1, bands, *size])) + _bytes(12, _value("means", [1, 2, *size]))
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _text(1, "") + _number(2, 13))


def _value(name: str, shape: list[Any]) -> bytes:
    dims = [_bytes(1, _number(1, one) if isinstance(one, int) else _text(2, one)) for one in shape]
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, FLOAT) + _bytes(2, b"".join(dims))))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
