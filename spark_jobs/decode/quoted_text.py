"""Finds the quotes in bytes in which a backslash escapes the next byte, as in arrays and in JSON."""

from __future__ import annotations

import numpy as np

_QUOTE, _ESCAPE = (ord(byte) for byte in '"\\')


def escapes_and_quotes(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two masks: the backslashes that escape the next byte, and the quotes that are not escaped."""
    at = np.flatnonzero(data == _ESCAPE)
    begins = np.concatenate([[True], np.diff(at) > 1]) if len(at) else np.zeros(0, dtype=bool)
    in_run = np.arange(len(at)) - np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))
    escapes = marked(at[in_run % 2 == 0], len(data))
    escaped = np.concatenate([[False], escapes[:-1]]) if len(data) else escapes
    return escapes, (data == _QUOTE) & ~escaped


def marked(places: np.ndarray, size: int) -> np.ndarray:
    """A mask of ``size`` bytes, true at these places."""
    marks = np.zeros(size, dtype=bool)
    marks[places] = True
    return marks
