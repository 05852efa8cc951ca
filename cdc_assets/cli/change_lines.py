"""Changes as lines of JSON, without loss.

Numbers of PostgreSQL that JSON's readers may round (decimals), or that JSON does not have (NaN, infinities), are
strings with all their digits; LSNs and bytea are as PostgreSQL prints them, times in ISO 8601.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pyarrow as pa

from cdc_assets.cli.json_output import json_line
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.mode_columns import COMMIT_LSN


def change_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """One line for each change."""
    for row in batch.to_pylist():
        lsn = str(Lsn(row[COMMIT_LSN.name]))
        yield json_line({**{name: plain(value) for name, value in row.items()}, COMMIT_LSN.name: lsn}) + "\n"


def plain(value: object) -> object:
    """A value of a row as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, date):  # times too
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
