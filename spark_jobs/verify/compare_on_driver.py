"""The comparison of a small table on the driver: it proves two tables equal, and leaves it to Spark to say how they
differ. It takes milliseconds, where a Spark job takes seconds.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.equal_rows import comparable_rows
from spark_jobs.errors import LakeError
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import known_fields, source_columns
from spark_jobs.writers.with_arrow.opened_table import file_bytes
from spark_jobs.writers.with_arrow.rows_of_table import readable_table, rows_of_table

_log = logging.getLogger(__name__)

_MOST_BYTES = 32 << 20  # of data files


def lake_on_driver(path: Location, version: int, where: str) -> tuple[pa.Table, tuple[DeltaColumn, ...]] | None:
    """The rows of a small Delta table for which ``where`` holds, and the columns that it has from the source.

    None if it is large, or if the driver cannot read it, or is not certain to read what Spark reads.
    """
    table = readable_table(path, version)
    fields = known_fields(table) if table is not None else None
    if table is None or fields is None:
        return None
    if file_bytes(pa.table(table.get_add_actions(flatten=True))) > _MOST_BYTES:
        return None
    try:
        return rows_of_table(table, where), source_columns(fields)
    except LakeError as error:
        _log.info("%s is left to Spark: %s", path, error)
        return None


def are_equal(source: pa.Table, lake: pa.Table, shape: TableShape) -> bool:
    """Whether both certainly hold the same rows, each the same number of times. ``source`` has its columns named by
    ``net_columns.value``.

    Values are equal when PostgreSQL prints them alike, as in ``row_equality``.
    """
    if source.num_rows != lake.num_rows:
        return False
    names = [column.name for column in shape.columns]
    of_lake = comparable_rows(lake.select(names).rename_columns(list(map(value, range(len(names))))))
    try:
        of_source = comparable_rows(source).cast(of_lake.schema)
    except pa.ArrowException:  # somebody has given the table other types
        return False
    return bool(_sorted(of_source).equals(_sorted(of_lake)))


def _sorted(rows: pa.Table) -> pa.Table:
    """By all columns: equal tables, in which a row may occur several times, are then equal row by row."""
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in rows.column_names]))
