"""Misfits: values that the lake's type cannot hold, in whose place null or the nearest value is stored.

Decoding adds a column with PostgreSQL's text of each (``net_columns.misfit``) beside the values, if there is any.
Before the rows are written, these columns become records, one per value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.net_columns import COPIES, MISFIT_LSN, misfit, value
from spark_jobs.schema.table_shape import TableShape

# of one commit; what is beyond is only counted. The memory of 100 million misfits would be the driver's
MOST_RECORDS = 10_000

_NOT_KNOWN = 0  # an LSN that no commit has

# key          the key's columns with the text of their values, as JSON; null for a table without a key
# lsn          of the commit that wrote the row or, for a row of a snapshot, of the snapshot
# source_text  what PostgreSQL prints; a long text is cut off and ends with …
# stored       what the table has instead; null for null
RECORDS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("column", pa.string(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("source_text", pa.string(), nullable=False),
        pa.field("stored", pa.string()),
    ]
)


@dataclass(frozen=True)
class Misfits:
    """``counts``: how many each column has, by name; columns without any are left out. ``records``: of those that come
    first, in ``RECORDS_SCHEMA``."""

    counts: Mapping[str, int] = field(default_factory=dict)
    records: pa.Table = field(default_factory=RECORDS_SCHEMA.empty_table)

    @classmethod
    def of(cls, rows: pa.Table, shape: TableShape, most: int = MOST_RECORDS) -> Misfits:
        """Those of the ``rows`` that are written, which have columns named as in ``net_columns``, with so many records.
        Without a key, equal rows count once."""
        if not shape.has_key and COPIES.name in rows.column_names:
            rows = rows.filter(pc.greater(rows.column(COPIES.name), 0))
        counts: dict[str, int] = {}
        records: list[pa.Table] = []
        for place, column in enumerate(shape.columns):
            if misfit(place) not in rows.column_names:
                continue
            texts = rows.column(misfit(place))
            if count := len(texts) - texts.null_count:
                counts[column.name] = count
                first = rows.filter(pc.is_valid(texts)).slice(0, most)
                records.append(_records(first, shape, place))
        return cls(counts, pa.concat_tables(records).slice(0, most)) if records else NO_MISFITS

    @classmethod
    def all_of(cls, parts: Iterable[Misfits]) -> Misfits:
        """Those of all parts of a table."""
        counts: Counter[str] = Counter()
        records = RECORDS_SCHEMA.empty_table()
        for part in parts:
            counts.update(part.counts)
            records = pa.concat_tables([records, part.records]).slice(0, MOST_RECORDS)
        return cls(dict(counts), records)

    def at(self, lsn: Lsn) -> Misfits:
        """With the snapshot's LSN for rows that were read of the source."""
        place, lsns = RECORDS_SCHEMA.get_field_index("lsn"), self.records.column("lsn")
        known = pc.if_else(pc.equal(lsns, _NOT_KNOWN), pa.scalar(int(lsn), pa.int64()), lsns)
        return replace(self, records=self.records.set_column(place, RECORDS_SCHEMA.field("lsn"), known))

    def to_json(self) -> str:
        return json.dumps({"counts": dict(self.counts), "records": self.records.to_pylist()})

    @classmethod
    def from_json(cls, data: bytes | str) -> Misfits:
        """The inverse of ``to_json``."""
        fields = json.loads(data)
        return cls(fields["counts"], pa.Table.from_pylist(fields["records"], RECORDS_SCHEMA))

    def __bool__(self) -> bool:
        return bool(self.counts)


NO_MISFITS = Misfits()


def key_text(values: Mapping[str, Any]) -> str:
    """How a record names a row: by the values of its key's columns, by name, as JSON."""
    return json.dumps({name: _text(value) for name, value in values.items()}, ensure_ascii=False)


def _records(rows: pa.Table, shape: TableShape, place: int) -> pa.Table:
    """One for each row."""
    names = [shape.columns[index].name for index in shape.key_indices]
    values = zip(*(rows.column(value(index)).to_pylist() for index in shape.key_indices), strict=True)
    keys = [key_text(dict(zip(names, key, strict=True))) for key in values]
    is_of_changes = MISFIT_LSN.name in rows.column_names
    unknown = pa.repeat(pa.scalar(_NOT_KNOWN, pa.int64()), rows.num_rows)
    return pa.table(
        [
            pa.array(keys, pa.string()) if names else pa.nulls(rows.num_rows, pa.string()),
            pa.repeat(shape.columns[place].name, rows.num_rows),
            rows.column(MISFIT_LSN.name) if is_of_changes else unknown,
            rows.column(misfit(place)),
            pa.array(map(_text, rows.column(value(place)).to_pylist()), pa.string()),
        ],
        schema=RECORDS_SCHEMA,
    )


def _text(stored: Any) -> str | None:
    """A value of the lake as PostgreSQL would print it, but for the quotes inside an array."""
    match stored:
        case None:
            return None
        case bool():
            return "t" if stored else "f"
        case bytes():
            return f"\\x{stored.hex()}"
        case Decimal():
            return f"{stored:f}"
        case datetime():
            return str(stored) if stored.tzinfo is None else f"{stored.replace(tzinfo=None)}+00"
        case list():
            return "{" + ",".join("NULL" if each is None else str(_text(each)) for each in stored) + "}"
    return str(stored)
