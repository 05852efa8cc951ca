"""The net change of a large range, computed by executors: from the change log to Parquet in the lake.

The driver sees only the table's description, its TRUNCATEs, and a few sums. See ``on_executors`` for the two steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, described_changes
from spark_jobs.apply.net_change.appended import appended_truncates
from spark_jobs.apply.net_change.on_executors import (
    INPUT_COLUMNS,
    final_fields,
    final_net,
    ordered_net,
    partial_copies,
    partial_net,
)
from spark_jobs.apply.net_change.past_on_executors import (
    PAST_INPUT_COLUMNS,
    PastWork,
    appended,
    past_final,
    past_ordered,
    past_partial,
)
from spark_jobs.apply.net_change.truncates import last_truncate, truncate_commits, truncates_of
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.delta.table import delta_identifier
from spark_jobs.lake.copies_merge import summed_copies
from spark_jobs.lake.merge_sql import KeyRange, ranged_key
from spark_jobs.lake.net_source import NetSource
from spark_jobs.lake.past_sql import RowsEnded
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.net_columns import COPIES, FRESH, LEANS, NetColumns, ddl, old_key, unchanged, value
from spark_jobs.table_mode import holds_changes, keeps_past

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# bytes of messages that one task of the final step decodes
_PARTITION_BYTES = 32 << 20
_PARTIAL = (
    "commit_lsn bigint, ordinal bigint, kind string, version bigint, data binary, half tinyint, key binary,"
    " leans boolean"
)
_PAST_PARTIAL = f"{_PARTIAL}, commit_time timestamp"
_ROW_CHANGES = (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE)
_DESCRIBING = (RowKind.RELATION, RowKind.FACTS, RowKind.TRUNCATE)


def described_on_executors(spark: SparkSession, work: TableRange, held: Sequence[DeltaColumn]) -> LandedChanges | None:
    """What the driver needs to know about the range; None when the range changes nothing. Raises as ``landed_changes``
    does."""
    return described_changes(_logged(spark, work, _DESCRIBING).toArrow(), work, held)


@contextmanager
def net_on_executors(spark: SparkSession, work: TableRange, landed: LandedChanges) -> Iterator[NetSource]:
    """The net change of the range that ``landed`` describes. Its files live as long as the context.

    Raises Spark's exceptions, which may wrap an executor's DecodeError, UnrepresentableError or NeedsSnapshotError.
    """
    changes = _logged(spark, work, _ROW_CHANGES)
    counts = {row["kind"]: row["count"] for row in changes.groupBy("kind").count().collect()}
    inserts, updates, deletes = (counts.get(kind.value, 0) for kind in _ROW_CHANGES)
    seen = ChangeCounts(inserts, updates, deletes, landed.rows.num_rows)
    with staging_folder(work.pipeline.lake, work.state) as folder:
        if not keeps_past(work.state.mode):
            yield replace(_mirrored(work, landed, changes.select(*INPUT_COLUMNS), folder), changes=seen)
        else:
            yield replace(_with_past(work, landed, changes.select(*PAST_INPUT_COLUMNS), folder), changes=seen)


def _mirrored(work: TableRange, landed: LandedChanges, rows: DataFrame, folder: str) -> NetSource:
    after = last_truncate(landed.rows, landed.shape)
    if after is not None:
        lsn, ordinal = int(after.commit_lsn), after.ordinal
        rows = rows.where(f"commit_lsn > {lsn} OR commit_lsn = {lsn} AND ordinal > {ordinal}")
    policy = work.pipeline.on_unrepresentable
    if not landed.shape.has_key:
        return _staged_copies(rows, landed, after, f"{folder}/net", policy)
    widest = NetColumns.all_possible(landed.shape)
    by_key = _by_key(rows, landed, after, _parts(work), policy)
    source = _staged(by_key, f"{folder}/net", widest, truncated=after is not None)
    if source is None:  # a key move depends on rows in other partitions
        in_order = _in_order(rows, landed, after, policy)
        source = _staged(in_order, f"{folder}/ordered", widest, truncated=after is not None)
    assert source is not None
    return source


def _with_past(work: TableRange, landed: LandedChanges, rows: DataFrame, folder: str) -> NetSource:
    """The net change in a mode other than ``mirror``."""
    shape, mode = landed.shape, work.state.mode
    truncates = truncate_commits(landed.rows, shape)
    lenient = bool(work.state.generation.missing_operations)
    past = PastWork(shape, landed.relations, mode, truncates, lenient, work.pipeline.on_unrepresentable)
    widest = NetColumns.all_possible(shape, mode)
    if holds_changes(mode):
        return _staged_changes(rows, past, landed, f"{folder}/net")
    schema = ddl(final_fields(shape, mode))
    halves = rows.mapInArrow(past_partial(past), _PAST_PARTIAL).repartition(_parts(work), "key")
    source = _staged(halves.mapInArrow(past_final(past), schema), f"{folder}/net", widest, truncated=False)
    if source is None:
        in_order = rows.coalesce(1).mapInArrow(past_ordered(past), schema)
        source = _staged(in_order, f"{folder}/ordered", widest, truncated=False)
    assert source is not None
    if not truncates:
        return source
    ended = RowsEnded(truncates[0].position.commit_lsn, truncates[0].at)
    return replace(source, insert_only=False, ended=ended)


def _parts(work: TableRange) -> int:
    return 1 + work.bytes // _PARTITION_BYTES


def _staged_changes(rows: DataFrame, past: PastWork, landed: LandedChanges, folder: str) -> NetSource:
    """Mode ``append``: one row per change, TRUNCATEs included."""
    columns = NetColumns(past.shape, mode="append")
    schema = ddl(columns.fields)
    emptied = rows.sparkSession.createDataFrame(appended_truncates(truncates_of(landed.rows), past.shape), schema)
    changes = rows.mapInArrow(appended(past), schema).unionByName(emptied)
    changes.write.mode("overwrite").option("compression", "snappy").parquet(folder)

    def read(own: SparkSession) -> DataFrame:
        return own.read.schema(schema).parquet(folder)

    return NetSource(columns, False, True, None, read, read(rows.sparkSession).count())


def _logged(spark: SparkSession, work: TableRange, kinds: tuple[RowKind, ...]) -> DataFrame:
    """The log's rows of these kinds. Row changes that the snapshot already shows are left out."""
    named = ", ".join(f"'{kind.value}'" for kind in kinds)
    windows = f"window BETWEEN {work.first.ordinal} AND {work.last.ordinal}"
    condition = f"{windows} AND relid = {work.relid} AND kind IN ({named})"
    if work.before is not None:
        condition += f" AND commit_lsn < {int(work.before)}"
    if kinds == _ROW_CHANGES:
        condition += f" AND commit_lsn >= {int(work.state.snapshot_lsn)}"
    return spark.table(delta_identifier(work.pipeline.lake.change_log)).where(condition)


def _by_key(
    rows: DataFrame, landed: LandedChanges, after: Position | None, parts: int, policy: OnUnrepresentable
) -> DataFrame:
    """The net change in two steps, with a shuffle by key between them."""
    shape, relations = landed.shape, landed.relations
    partial = rows.mapInArrow(partial_net(shape, relations, after=after), _PARTIAL)
    final = final_net(shape, relations, truncated=after is not None, on_unrepresentable=policy)
    return partial.repartition(parts, "key").mapInArrow(final, ddl(final_fields(shape)))


def _in_order(rows: DataFrame, landed: LandedChanges, after: Position | None, policy: OnUnrepresentable) -> DataFrame:
    """The net change in one task, in the order of the log: for changes that depend on rows of other keys."""
    whole = ordered_net(landed.shape, landed.relations, after=after, on_unrepresentable=policy)
    return rows.coalesce(1).mapInArrow(whole, ddl(final_fields(landed.shape)))


def _staged_copies(
    rows: DataFrame, landed: LandedChanges, after: Position | None, folder: str, policy: OnUnrepresentable
) -> NetSource:
    """For a table without a key: each task sums the copies that it has read, and Spark adds up these sums."""
    shape, columns = landed.shape, NetColumns(landed.shape)
    partial = partial_copies(shape, landed.relations, after=after, on_unrepresentable=policy)
    partial_sums = rows.mapInArrow(partial, ddl(columns.fields))
    summed_copies(partial_sums, shape).write.mode("overwrite").option("compression", "snappy").parquet(folder)

    def read(own: SparkSession) -> DataFrame:
        return own.read.schema(ddl(columns.fields)).parquet(folder)

    goes, place = f"{COPIES.name} < 0", ranged_key(shape)
    asked = ["count(*) AS rows", f"count_if({goes}) AS going"]
    if place is not None:
        ends = f"FILTER (WHERE {goes})"
        asked += [f"{end}({value(place)}) {ends} AS {name}" for end, name in (("min", "low"), ("max", "high"))]
        asked += [f"count_if({goes} AND {value(place)} IS NULL) AS unranged"]
    found: Row = read(rows.sparkSession).selectExpr(*asked).collect()[0]
    ranged = place is not None and found["low"] is not None and not found["unranged"]
    key_range = KeyRange(found["low"], found["high"]) if ranged else None
    return NetSource(columns, after is not None, not found["going"], key_range, read, found["rows"])


def _staged(net: DataFrame, folder: str, widest: NetColumns, *, truncated: bool) -> NetSource | None:
    """Stage ``net``. None if some row can only be computed in the order of the log."""
    net.write.mode("overwrite").option("compression", "snappy").parquet(folder)
    return _source(net.sparkSession, folder, widest, truncated=truncated)


def _source(spark: SparkSession, folder: str, widest: NetColumns, *, truncated: bool) -> NetSource | None:
    """Describe the staged rows, with one query. None if some row can only be computed in the order of the log."""
    shape = widest.shape
    place, schema = ranged_key(shape), ddl(final_fields(shape, widest.mode))
    asked = ["count(*) AS rows", f"bool_or({LEANS.name}) AS leans", f"bool_and({FRESH.name}) AS fresh"]
    ends = ("NULL", "NULL") if place is None else (f"min({value(place)})", f"max({value(place)})")
    asked += [f"{end} AS {name}" for end, name in zip(ends, ("low", "high"), strict=True)]
    asked += [f"bool_or({unchanged(i)}) AS {unchanged(i)}" for i in widest.unchanged]
    asked += [f"count({old_key(i)}) > 0 AS {old_key(i)}" for i in widest.old_keys]
    seen: Row = spark.read.schema(schema).parquet(folder).selectExpr(*asked).collect()[0]
    if seen["leans"]:
        return None
    columns = replace(
        widest,
        unchanged=tuple(i for i in widest.unchanged if seen[unchanged(i)]),
        old_keys=tuple(i for i in widest.old_keys if seen[old_key(i)]),
    )
    key_range = None if seen["low"] is None else KeyRange(seen["low"], seen["high"])
    names = [field.name for field in columns.fields]

    def read(own: SparkSession) -> DataFrame:
        return own.read.schema(schema).parquet(folder).select(*names)

    return NetSource(columns, truncated, bool(seen["fresh"]), key_range, read, seen["rows"])
