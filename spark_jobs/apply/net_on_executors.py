"""The net change of a large range, by executors: from the change log to Parquet in the lake, past the driver.

The driver sees what describes the table, its TRUNCATEs, and a few sums. See ``on_executors`` for the two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, described_changes
from spark_jobs.apply.net_change.on_driver import last_truncate
from spark_jobs.apply.net_change.on_executors import INPUT_COLUMNS, final_fields, final_net, ordered_net, partial_net
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.lake.merge_sql import KeyRange, delta_identifier, ranged_key
from spark_jobs.lake.net_write import NetSource
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.schema.net_columns import FRESH, LEANS, NetColumns, ddl, old_key, unchanged, value
from spark_jobs.schema.table_shape import TableShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# what one task of the final step decodes at once, in bytes of messages
_PARTITION_BYTES = 32 << 20
_PARTIAL = (
    "commit_lsn bigint, ordinal bigint, kind string, version bigint, data binary, half tinyint, key binary,"
    " leans boolean"
)
_ROW_CHANGES = (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE)
_DESCRIBING = (RowKind.RELATION, RowKind.FACTS, RowKind.TRUNCATE)


def described_on_executors(spark: SparkSession, work: TableRange, relid: int) -> LandedChanges | None:
    """What the driver needs to know of the range. None when there is nothing. Raises as ``landed_changes`` does."""
    return described_changes(_logged(spark, work, relid, _DESCRIBING).toArrow(), work)


@contextmanager
def net_on_executors(spark: SparkSession, work: TableRange, relid: int, landed: LandedChanges) -> Iterator[NetSource]:
    """The net change of a range of which ``landed`` is the description; its files live as long as the context.

    Raises Spark's exceptions, with an executor's DecodeError, UnrepresentableError or SchemaChangeError in them.
    """
    changes = _logged(spark, work, relid, _ROW_CHANGES)
    counts = {row["kind"]: row["count"] for row in changes.groupBy("kind").count().collect()}
    inserts, updates, deletes = (counts.get(kind.value, 0) for kind in _ROW_CHANGES)
    seen = ChangeCounts(inserts, updates, deletes, landed.rows.num_rows)
    with staging_folder(work.pipeline.lake, work.state) as folder:
        after = last_truncate(landed.rows, landed.shape)
        rows = changes.select(*INPUT_COLUMNS)
        if after is not None:
            lsn, ordinal = int(after.commit_lsn), after.ordinal
            rows = rows.where(f"commit_lsn > {lsn} OR commit_lsn = {lsn} AND ordinal > {ordinal}")
        parts, policy = 1 + work.bytes_of(relid) // _PARTITION_BYTES, work.pipeline.on_unrepresentable
        source = _staged(_by_key(rows, landed, after, parts, policy), f"{folder}/net", landed.shape, after)
        if source is None:  # a key move hangs on what lies in other partitions
            source = _staged(_in_order(rows, landed, after, policy), f"{folder}/ordered", landed.shape, after)
        assert source is not None
        yield replace(source, changes=seen)


def _logged(spark: SparkSession, work: TableRange, relid: int, kinds: tuple[RowKind, ...]) -> DataFrame:
    """The log's rows of these kinds; of row changes those that the snapshot does not show."""
    named = ", ".join(f"'{kind.value}'" for kind in kinds)
    windows = f"window BETWEEN {work.first.ordinal} AND {work.last.ordinal}"
    condition = f"{windows} AND relid = {relid} AND kind IN ({named})"
    if kinds == _ROW_CHANGES:
        condition += f" AND commit_lsn >= {int(work.state.snapshot_lsn)}"
    return spark.table(delta_identifier(work.pipeline.lake.change_log)).where(condition)


def _by_key(
    rows: DataFrame, landed: LandedChanges, after: Position | None, parts: int, policy: OnUnrepresentable
) -> DataFrame:
    """In two steps, with a shuffle by key between them."""
    shape, relations = landed.shape, landed.relations
    partial = rows.mapInArrow(partial_net(shape, relations, after=after), _PARTIAL)
    final = final_net(shape, relations, truncated=after is not None, on_unrepresentable=policy)
    return partial.repartition(parts, "key").mapInArrow(final, ddl(final_fields(shape)))


def _in_order(rows: DataFrame, landed: LandedChanges, after: Position | None, policy: OnUnrepresentable) -> DataFrame:
    """In one task, in the order of the log: what hangs on rows of other keys."""
    whole = ordered_net(landed.shape, landed.relations, after=after, on_unrepresentable=policy)
    return rows.coalesce(1).mapInArrow(whole, ddl(final_fields(landed.shape)))


def _staged(net: DataFrame, folder: str, shape: TableShape, after: Position | None) -> NetSource | None:
    """None when only the order of the log can do it."""
    net.write.mode("overwrite").option("compression", "snappy").parquet(folder)
    return _source(net.sparkSession, folder, ddl(final_fields(shape)), shape, truncated=after is not None)


def _source(spark: SparkSession, folder: str, schema: str, shape: TableShape, *, truncated: bool) -> NetSource | None:
    """What the staged rows are like, asked in one query."""
    place, possible = ranged_key(shape), NetColumns.all_possible(shape)
    asked = ["count(*) AS rows", f"bool_or({LEANS.name}) AS leans", f"bool_and({FRESH.name}) AS fresh"]
    ends = ("NULL", "NULL") if place is None else (f"min({value(place)})", f"max({value(place)})")
    asked += [f"{end} AS {name}" for end, name in zip(ends, ("low", "high"), strict=True)]
    asked += [f"bool_or({unchanged(i)}) AS {unchanged(i)}" for i in possible.unchanged]
    asked += [f"count({old_key(i)}) > 0 AS {old_key(i)}" for i in possible.old_keys]
    seen: Row = spark.read.schema(schema).parquet(folder).selectExpr(*asked).collect()[0]
    if seen["leans"]:
        return None
    columns = NetColumns(
        shape,
        tuple(i for i in possible.unchanged if seen[unchanged(i)]),
        tuple(i for i in possible.old_keys if seen[old_key(i)]),
    )
    key_range = None if seen["low"] is None else KeyRange(seen["low"], seen["high"])
    names = [field.name for field in columns.fields]

    def read(own: SparkSession) -> DataFrame:
        return own.read.schema(schema).parquet(folder).select(*names)

    return NetSource(columns, truncated, bool(seen["fresh"]), key_range, read, seen["rows"])
