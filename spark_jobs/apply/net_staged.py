"""The net change of a large range, by executors: from the change log to Parquet in the lake, past the driver.

The driver sees what describes the table, its TRUNCATEs, and a few sums. See ``on_executors`` for the two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, described_changes
from spark_jobs.apply.net_change.on_driver import last_truncate
from spark_jobs.apply.net_change.on_executors import INPUT_COLUMNS, final_fields, final_net, ordered_net, partial_net
from spark_jobs.apply.net_source import NetSource, staging_folder
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.configuration import Lake
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.lake.merge_sql import KeyRange, delta_identifier, ranged_key
from spark_jobs.lake.net_write import NetForm
from spark_jobs.lake.table_state import TableState
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


@dataclass(frozen=True)
class LoggedRange:
    """The changes of one table in windows ``first`` to ``last``, where they lie; ``bytes`` of messages together."""

    change_log: str
    relid: int
    state: TableState
    first: int
    last: int
    bytes: int

    def rows(self, spark: SparkSession, kinds: tuple[RowKind, ...]) -> DataFrame:
        """Of these kinds; of row changes those that the snapshot does not show."""
        named = ", ".join(f"'{kind.value}'" for kind in kinds)
        condition = f"window BETWEEN {self.first} AND {self.last} AND relid = {self.relid} AND kind IN ({named})"
        if kinds == _ROW_CHANGES:
            condition += f" AND commit_lsn >= {int(self.state.snapshot_lsn)}"
        return spark.table(delta_identifier(self.change_log)).where(condition)

    def described(self, spark: SparkSession) -> LandedChanges | None:
        """What the driver needs to know. None when there is nothing. Raises as ``landed_changes`` does."""
        told = self.rows(spark, _DESCRIBING).toArrow()
        return described_changes(told, self.state, self.first, self.last)


@contextmanager
def net_staged(
    spark: SparkSession, lake: Lake, logged: LoggedRange, landed: LandedChanges, on_unrepresentable: OnUnrepresentable
) -> Iterator[NetSource]:
    """The net change of ``logged``, of which ``landed`` is the description; its files live as long as the context.

    Raises Spark's exceptions, with an executor's DecodeError, UnrepresentableError or SchemaChangeError in them.
    """
    counts = {row["kind"]: row["count"] for row in logged.rows(spark, _ROW_CHANGES).groupBy("kind").count().collect()}
    inserts, updates, deletes = (counts.get(kind.value, 0) for kind in _ROW_CHANGES)
    seen = ChangeCounts(inserts, updates, deletes, landed.rows.num_rows)
    with staging_folder(lake, logged.state) as folder:
        after = last_truncate(landed.rows, landed.shape)
        source = _staged(spark, f"{folder}/net", logged, landed, after, on_unrepresentable)
        if source is None:  # a key move hangs on what lies in other partitions
            source = _staged(spark, f"{folder}/ordered", logged, landed, after, on_unrepresentable, ordered=True)
        assert source is not None
        yield replace(source, changes=seen)


def _staged(
    spark: SparkSession,
    folder: str,
    logged: LoggedRange,
    landed: LandedChanges,
    after: Position | None,
    on_unrepresentable: OnUnrepresentable,
    *,
    ordered: bool = False,
) -> NetSource | None:
    """None when only ``ordered`` can do it."""
    shape, relations = landed.shape, landed.relations
    changes = logged.rows(spark, _ROW_CHANGES).select(*INPUT_COLUMNS)
    if after is not None:
        lsn, ordinal = int(after.commit_lsn), after.ordinal
        changes = changes.where(f"commit_lsn > {lsn} OR commit_lsn = {lsn} AND ordinal > {ordinal}")
    schema = ddl(final_fields(shape))
    if ordered:
        whole = ordered_net(shape, relations, after=after, on_unrepresentable=on_unrepresentable)
        net = changes.coalesce(1).mapInArrow(whole, schema)
    else:
        final = final_net(shape, relations, truncated=after is not None, on_unrepresentable=on_unrepresentable)
        parts = 1 + logged.bytes // _PARTITION_BYTES
        partial = changes.mapInArrow(partial_net(shape, relations, after=after), _PARTIAL)
        net = partial.repartition(parts, "key").mapInArrow(final, schema)
    net.write.mode("overwrite").option("compression", "snappy").parquet(folder)
    return _source(spark, folder, schema, landed.shape, truncated=after is not None)


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
    form = NetForm(columns, truncated, bool(seen["fresh"]), key_range)
    names = [field.name for field in columns.fields]
    return NetSource(form, lambda own: own.read.schema(schema).parquet(folder).select(*names), seen["rows"])
