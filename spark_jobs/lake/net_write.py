"""The net change of one table into its Delta table: one append, one overwrite or one MERGE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.lake.merge_sql import (
    NET_CHANGE,
    KeyRange,
    kept_values_query,
    merge_statement,
    named_columns,
    ranged_key,
)
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, overtaking
from spark_jobs.schema.net_columns import OPERATION, UPSERT, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import is_concurrent_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"

_MOVED = "moved_rows"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"


@dataclass(frozen=True)
class NetSource:
    """A net change ready to be written: ``read`` gives its ``rows`` of ``columns`` to a session.

    ``truncated``: the table is emptied first. ``insert_only``: every row is an upsert of a key that the table lacks.
    ``changes`` were seen.
    """

    columns: NetColumns
    truncated: bool
    insert_only: bool
    key_range: KeyRange | None
    read: Frame
    rows: int
    changes: ChangeCounts = NO_CHANGES

    @property
    def is_empty(self) -> bool:
        """Nothing to write, and nothing to empty."""
        return not self.rows and not self.truncated


def key_range_of(rows: pa.Table, shape: TableShape) -> KeyRange | None:
    """The range of the leading key column, where a literal range can spare Delta files."""
    place = ranged_key(shape)
    if place is None or rows.num_rows == 0:
        return None
    ends = pc.min_max(rows.column(value(place))).as_py()
    return KeyRange(ends["min"], ends["max"])


@retry(
    retry=retry_if_exception(is_concurrent_commit),
    stop=stop_after_attempt(5),
    wait=wait_random_exponential(multiplier=0.5, max=10),
    reraise=True,
)
def write_net(spark: SparkSession, path: str, net: NetSource, provenance: Provenance, *, compact: bool = False) -> int:
    """Commit a net change that is not empty. Returns the Delta version.

    Raises OvertakenError when a writer of ours has committed since the table's state was read, and Spark's own
    exceptions; a foreign commit in between, an OPTIMIZE say, is retried.
    """
    shape = net.columns.shape
    with overtaking(path), committing_session(spark, provenance, compact=compact) as own:
        rows = net.read(own)
        if net.truncated or net.insert_only:
            # after a TRUNCATE only upserts are left to write; an overwrite with no row is a commit as well
            written = rows.where(f"{OPERATION} = {UPSERT}").selectExpr(*named_columns(shape.columns))
            written.write.format("delta").mode("overwrite" if net.truncated else "append").save(path)
        else:
            kept, moved = net.columns.unchanged, net.columns.old_keys
            if kept and moved:
                rows.createOrReplaceTempView(_MOVED)
                own.sql(kept_values_query(path, shape, kept, moved, _MOVED)).createOrReplaceTempView(NET_CHANGE)
            else:
                rows.createOrReplaceTempView(NET_CHANGE)
                # MERGE reads its source twice, and by default keeps a copy of all that is no Delta table, lest the two
                # differ; ours is a file of its own or rows in the plan. 0.9 s of 6.6 s for 650,000 rows
                own.conf.set(_MATERIALIZE, "none")
            own.sql(merge_statement(path, shape, kept, net.key_range))
        return committed_version(own, path)
