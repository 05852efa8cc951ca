"""The statistics of one data file, in Delta's form: by them readers skip files.

Least and greatest values are written of integers, dates, timestamps and strings. JSON has no NaN, and Python would
round decimals in it: of floats and decimals there is only the number of nulls, so no file is skipped by their values.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WIDE_BYTES = 4096  # on average
# what Spark keeps of a string, and the character that makes a shortened one greater than all that begin with it
_CHARACTERS = 32
_GREATEST_CHARACTER = "\U0010ffff"


@dataclass
class Statistics:
    """Of the rows that were added, and of these ``columns``."""

    columns: Sequence[str]
    rows: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    least: dict[str, Any] = field(default_factory=dict)
    greatest: dict[str, Any] = field(default_factory=dict)

    def add(self, group: pa.Table) -> None:
        self.rows += group.num_rows
        for name in self.columns:
            column = group.column(name)
            self.nulls[name] += column.null_count
            if column.null_count < len(column) and _has_order(column.type):
                ends = pc.min_max(_beginnings(column) if is_wide(column) else column).as_py()
                self.least[name] = min(self.least.get(name, ends["min"]), ends["min"])
                self.greatest[name] = max(self.greatest.get(name, ends["max"]), ends["max"])

    def to_json(self) -> str:
        greatest = {name: _at_most(value) for name, value in self.greatest.items()}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _at_least(value) for name, value in self.least.items()},
                "maxValues": {name: value for name, value in greatest.items() if value is not None},
                "nullCount": dict(self.nulls),
            }
        )


def is_wide(column: pa.ChunkedArray) -> bool:
    """Whether it holds few values for its bytes: nothing may be made of them that needs copies."""
    return bool(column.nbytes > _WIDE_BYTES * len(column))


def _beginnings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Of texts: as much as is looked at. The least beginning is the beginning of the least text."""
    return pc.utf8_slice_codeunits(column, 0, _CHARACTERS + 1) if pa.types.is_string(column.type) else column


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind) or types.is_string(kind))


def _at_least(value: Any) -> Any:
    """A value that is not greater, as JSON has it."""
    return value[:_CHARACTERS] if isinstance(value, str) else _json(value)


def _at_most(value: Any) -> Any:
    """A value that is not less, as JSON has it; None if there is none of this length."""
    if not isinstance(value, str):
        return _json(value)
    if len(value) <= _CHARACTERS:
        return value
    return None if value[_CHARACTERS] == _GREATEST_CHARACTER else value[:_CHARACTERS] + _GREATEST_CHARACTER


def _json(value: Any) -> Any:
    """Instants are cut to milliseconds, as the protocol wants: readers add one to the greatest."""
    if isinstance(value, datetime):
        printed = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return printed if value.tzinfo is None else f"{printed}Z"
    return value.isoformat() if isinstance(value, date) else value
