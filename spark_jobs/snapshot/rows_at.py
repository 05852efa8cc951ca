"""What a snapshot's rows say of their commit: that they are as the snapshot shows them, at its LSN."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pyarrow as pa

from spark_jobs.apply.net_change.moments import Moments
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.table_shape import TableShape


def rows_at(
    moment: Moment, batches: Iterable[pa.RecordBatch], written: TableShape
) -> Generator[pa.RecordBatch, None, None]:
    """``batches`` of the source's columns, with the commit columns of ``written``."""
    for rows in batches:
        commits = Moments.all_of(moment, len(rows)).values(written)
        yield pa.RecordBatch.from_arrays([*rows.columns, *commits.values()], [*rows.schema.names, *commits])
