"""A search of its own for a canary: every value of every Parquet file of a lake, whether a table has the file or not,
and every byte of all others."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

CANARY = "canary"


def files_with_canary(lake: Path) -> list[str]:
    """Below ``lake``, with the canary in their names too."""
    files = sorted(file for file in lake.rglob("*") if file.is_file())
    return [name for file in files if CANARY in (name := str(file.relative_to(lake))) or _holds_canary(file)]


def _holds_canary(file: Path) -> bool:
    # statistics in the footer are not compressed
    if CANARY.encode() in file.read_bytes():
        return True
    return file.suffix == ".parquet" and CANARY in str(pq.read_table(file).to_pylist())
