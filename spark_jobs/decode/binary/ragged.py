"""Builds a whole column of text from matrices of characters, one row per value, and masks of those to keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn

_QUADS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), dtype=np.uint8).reshape(-1, 4)
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint8).reshape(-1, 2)

Piece = tuple[np.ndarray, np.ndarray | bool]  # characters (rows, width), and a mask of those to keep, or True for all


def quads(numbers: np.ndarray) -> np.ndarray:
    """The four digits of each number below 10,000."""
    return np.asarray(_QUADS[numbers])


def hexadecimal(data: np.ndarray) -> np.ndarray:
    """The hexadecimal digits (rows, 2 * width) of a matrix of bytes (rows, width)."""
    return np.asarray(_HEX[data].reshape(len(data), 2 * data.shape[1]))


def constant(text: str, rows: int) -> np.ndarray:
    return np.broadcast_to(np.frombuffer(text.encode(), dtype=np.uint8), (rows, len(text)))


def text_of(pieces: Sequence[Piece], column: TextColumn) -> pa.Array:
    """The pieces of each row, concatenated, as a binary array with the nulls of ``column``. Pieces have one row for
    each non-null value of ``column``."""
    characters = np.concatenate([piece for piece, _ in pieces], axis=1)
    lengths = np.zeros(len(column), dtype=np.int32)
    if all(keep is True for _, keep in pieces):
        lengths[column.valid] = characters.shape[1]
        data = np.ascontiguousarray(characters)
    else:
        keeps = [np.broadcast_to(np.asarray(keep), piece.shape) for piece, keep in pieces]
        is_kept = np.concatenate(keeps, axis=1)
        lengths[column.valid] = is_kept.sum(axis=1)
        data = characters[is_kept]
    return column.holding(data, lengths)
