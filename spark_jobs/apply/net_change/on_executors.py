"""The net change of a large range, computed by executors: from the change log to Parquet in the lake.

The driver sees only the table's description, its TRUNCATEs, and a few sums. See ``in_tasks`` for the two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.appended import appended_truncates
from spark_jobs.apply.net_change.in_tasks import (
    fields_of_changes,
    final_fields,
    final_net,
    input_fields,
    net_of_changes,
    ordered_net,
    partial_fields,
    partial_net,
)
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.truncates import truncates_of, truncations
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.delta.table import delta_identifier
from spark_jobs.schema.net_columns import (
    COPIES,
    FRESH,
    LEANS,
    NetColumns,
    ddl,
    old_key,
    unchanged,
    value,
)
from spark_jobs.table_mode import holds_changes
from spark_jobs.writers.copies_merge import summed_copies
from spark_jobs.writers.merge_sql import KeyRange, ranged_key
from spark_jobs.writers.net_source import Frame, NetSource, key_ends, key_range_in
from spark_jobs.writers.staged_misfits import counted_misfits, misfits_among

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PARTITION_BYTES = 32 << 20  # of messages that one task of the final step decodes
_ROW_CHANGES = (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE)
_DESCRIBING = (RowKind.RELATION, RowKind.FACTS, RowKind.TRUNCATE)


def describing_rows(spark: SparkSession, work: TableRange) -> pa.Table:
    """The change log's rows by which the driver knows the range: all but the changes of rows."""
    return _logged(spark, work, _DESCRIBING).toArrow()


@contextmanager
def net_on_executors(spark: SparkSession, work: TableRange, landed: LandedChanges) -> Iterator[NetSource]:
    """The net change of the range that ``landed`` describes. Its files live as long as the context.

    Raises Spark's exceptions, which may wrap an executor's DecodeError, UnrepresentableError or NeedsSnapshotError.
    """
    state, shape = work.state, landed.shape
    truncates, lenient = truncations(landed.rows, shape), bool(state.generation.missing_operations)
    policy = work.pipeline.on_unrepresentable
    form = state.generation.form
    rules = NetRules(shape, landed.relations, form.mode, truncates, lenient, policy, form.commit_columns)
    logged = _logged(spark, work, _ROW_CHANGES)
    counts = {row["kind"]: row["count"] for row in logged.groupBy("kind").count().collect()}
    inserts, updates, deletes = (counts.get(kind.value, 0) for kind in _ROW_CHANGES)
    change_counts = ChangeCounts(inserts, updates, deletes, landed.rows.num_rows)
    changes = _counting(logged, rules).select(*(field.name for field in input_fields(rules.mode, rules.commit_columns)))
    with staging_folder(work.pipeline.lake, state) as folder:
        if rules.nets_by_key:
            net = _by_key(changes, rules, 1 + work.bytes // _PARTITION_BYTES, folder)
        elif holds_changes(rules.mode):
            net = _appended(changes, rules, landed, folder)
        else:
            net = _copies(changes, rules, folder)
        yield replace(net, changes=change_counts)


def _counting(rows: DataFrame, rules: NetRules) -> DataFrame:
    """As ``rules.counting``, so that Spark reads no rows before a TRUNCATE in vain."""
    if not rules.truncated:
        return rows
    after = rules.truncates[-1].position
    lsn = int(after.commit_lsn)
    return rows.where(f"commit_lsn > {lsn} OR commit_lsn = {lsn} AND ordinal > {after.ordinal}")


def _by_key(rows: DataFrame, rules: NetRules, parts: int, folder: str) -> NetSource:
    """In two steps, with a shuffle by key between them."""
    schema = ddl(final_fields(rules.written, rules.mode))
    partial = ddl(partial_fields(rules.mode, rules.commit_columns))
    halves = rows.mapInArrow(partial_net(rules), partial).repartition(parts, "key")
    source = _staged(halves.mapInArrow(final_net(rules), schema), f"{folder}/net", rules)
    if source is None:  # a key move depends on rows in other partitions: one task, in the order of the log
        source = _staged(rows.coalesce(1).mapInArrow(ordered_net(rules), schema), f"{folder}/ordered", rules)
    assert source is not None
    return source


def _appended(rows: DataFrame, rules: NetRules, landed: LandedChanges, folder: str) -> NetSource:
    """Mode ``append``: one row per change, TRUNCATEs included."""
    columns = NetColumns(rules.shape, mode=rules.mode)
    schema, whole = ddl(columns.fields), ddl(fields_of_changes(rules.shape, rules.mode))
    emptied = rows.sparkSession.createDataFrame(appended_truncates(truncates_of(landed.rows), rules.shape), schema)
    given = rows.mapInArrow(net_of_changes(rules), whole).unionByName(emptied, allowMissingColumns=True)
    read = _written(given, folder, whole)
    row: Row = read(rows.sparkSession).selectExpr("count(*) AS rows", *counted_misfits(rules.shape)).collect()[0]
    misfits = misfits_among(read(rows.sparkSession), row.asDict(), rules.shape)
    return NetSource(columns, False, True, None, _selected(read, columns), row["rows"], misfits=misfits)


def _copies(rows: DataFrame, rules: NetRules, folder: str) -> NetSource:
    """For a table without a key: each task sums the copies that it has read, and Spark adds up these sums."""
    shape, columns = rules.written, NetColumns(rules.written)
    schema = ddl(fields_of_changes(shape))
    read = _written(summed_copies(rows.mapInArrow(net_of_changes(rules), schema), shape), folder, schema)
    goes, place = f"{COPIES.name} < 0", ranged_key(shape)
    expressions = ["count(*) AS rows", f"count_if({goes}) AS going", *counted_misfits(shape, f"{COPIES.name} > 0")]
    if place is not None:
        ends = f"FILTER (WHERE {goes})"
        expressions += [f"{end}({value(place)}) {ends} AS {name}" for end, name in (("min", "low"), ("max", "high"))]
        expressions += [f"count_if({goes} AND {value(place)} IS NULL) AS unranged"]
    row: Row = read(rows.sparkSession).selectExpr(*expressions).collect()[0]
    ranged = place is not None and row["low"] is not None and not row["unranged"]
    key_range = KeyRange(row["low"], row["high"]) if ranged else None
    return NetSource(
        columns,
        rules.truncated,
        not row["going"],
        key_range,
        _selected(read, columns),
        row["rows"],
        misfits=misfits_among(read(rows.sparkSession), row.asDict(), shape),
    )


def _staged(net: DataFrame, folder: str, rules: NetRules) -> NetSource | None:
    """Stage ``net``, and describe its rows with one query. None if some row can only be computed in the order of the
    log."""
    staged = _written(net, folder, ddl(final_fields(rules.written, rules.mode)))
    widest = NetColumns.all_possible(rules.written, rules.mode)
    expressions = ["count(*) AS rows", f"bool_or({LEANS.name}) AS leans", f"bool_and({FRESH.name}) AS fresh"]
    expressions += key_ends(rules.shape)
    expressions += [f"bool_or({unchanged(i)}) AS {unchanged(i)}" for i in widest.unchanged]
    expressions += [f"count({old_key(i)}) > 0 AS {old_key(i)}" for i in widest.old_keys]
    expressions += counted_misfits(rules.written)
    row: Row = staged(net.sparkSession).selectExpr(*expressions).collect()[0]
    if row["leans"]:
        return None
    columns = replace(
        widest,
        unchanged=tuple(i for i in widest.unchanged if row[unchanged(i)]),
        old_keys=tuple(i for i in widest.old_keys if row[old_key(i)]),
    )
    insert_only = rules.ended is None and bool(row["fresh"])
    return NetSource(
        columns,
        rules.truncated,
        insert_only,
        key_range_in(row),
        _selected(staged, columns),
        row["rows"],
        ended=rules.ended,
        misfits=misfits_among(staged(net.sparkSession), row.asDict(), rules.written),
    )


def _selected(staged: Frame, columns: NetColumns) -> Frame:
    """Only what is written."""
    names = [field.name for field in columns.fields]
    return lambda own: staged(own).select(*names)


def _written(rows: DataFrame, folder: str, schema: str) -> Frame:
    rows.write.mode("overwrite").option("compression", "snappy").parquet(folder)
    return lambda own: own.read.schema(schema).parquet(folder)


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
