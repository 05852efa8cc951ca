"""The net change of a large range, computed by executors: from the change log to Parquet in the lake.

The driver sees only the table's description, its TRUNCATEs, and a few sums. See ``in_tasks`` for the two steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, described_changes
from spark_jobs.apply.net_change.appended import appended_truncates
from spark_jobs.apply.net_change.in_tasks import (
    TaskStep,
    final_net,
    input_fields,
    net_of_changes,
    ordered_net,
    partial_net,
)
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.truncates import truncates_of, truncations
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.delta.table import delta_identifier
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.misfits import Misfits
from spark_jobs.schema.net_columns import (
    COPIES,
    FRESH,
    LEANS,
    NetColumns,
    NetField,
    ddl,
    old_key,
    unchanged,
)
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.merge_sql import KeyRange
from spark_jobs.writers.net_source import Frame, NetSource, key_ends, key_range_in
from spark_jobs.writers.with_spark.copies_merge import summed_copies
from spark_jobs.writers.with_spark.staged_misfits import counted_misfits, misfits_among

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_PARTITION_BYTES = 32 << 20  # of messages that one task of the final step decodes
_ROW_CHANGES = (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE)
_DESCRIBING = (RowKind.RELATION, RowKind.FACTS, RowKind.TRUNCATE)


def described_on_executors(work: TableRange, lake_columns: Sequence[DeltaColumn]) -> LandedChanges | None:
    failed = f"{work.name}: the change log at {work.pipeline.lake.change_log} cannot be read"
    with isolated_session(work.run.spark(), {}) as spark, spark_errors(failed):
        return described_changes(_logged(spark, work, _DESCRIBING).toArrow(), work, lake_columns)


@contextmanager
def net_on_executors(work: TableRange, landed: LandedChanges) -> Iterator[NetSource]:
    failed = f"{work.name}: {work.windows} were not applied"
    with isolated_session(work.run.spark(), {}) as spark, spark_errors(failed, name=work.name, path=work.path):
        rules = replace(landed.rules, truncates=truncations(landed.rows, landed.shape))
        logged = _logged(spark, work, _ROW_CHANGES)
        by_kind = {row["kind"]: row["count"] for row in logged.groupBy("kind").count().collect()}
        inserts, updates, deletes = (by_kind.get(kind.value, 0) for kind in _ROW_CHANGES)
        counts = ChangeCounts(inserts, updates, deletes, landed.rows.num_rows)
        changes = _counting(logged, rules).select(*(field.name for field in input_fields(rules)))
        with staging_folder(work.pipeline.lake, work.state) as folder:
            if rules.nets_by_key:
                net = _by_key(changes, rules, 1 + work.bytes // _PARTITION_BYTES, folder)
            elif holds_changes(rules.mode):
                net = _appended(changes, rules, landed, folder)
            else:
                net = _copies(changes, rules, folder)
            yield replace(net, changes=counts, truncated=rules.truncated, ended=rules.ended, lenient=rules.lenient)


def _counting(rows: DataFrame, rules: NetRules) -> DataFrame:
    """As ``rules.counting``, so that Spark reads no rows before a TRUNCATE in vain."""
    if not rules.truncated:
        return rows
    after = rules.truncates[-1].position
    lsn = int(after.commit_lsn)
    return rows.where(f"commit_lsn > {lsn} OR commit_lsn = {lsn} AND ordinal > {after.ordinal}")


def _by_key(rows: DataFrame, rules: NetRules, parts: int, folder: str) -> NetSource:
    """In two steps, with a shuffle by key between them."""
    halves = _mapped(rows, partial_net(rules)).repartition(parts, "key")
    source = _netted(halves, final_net(rules), f"{folder}/net", rules)
    if source is None:  # a key move depends on rows in other partitions: one task, in the order of the log
        source = _netted(rows.coalesce(1), ordered_net(rules), f"{folder}/ordered", rules)
    assert source is not None
    return source


def _mapped(rows: DataFrame, step: TaskStep) -> DataFrame:
    return rows.mapInArrow(step.run, ddl(step.fields))


def _netted(rows: DataFrame, step: TaskStep, folder: str, rules: NetRules) -> NetSource | None:
    """None if some row can only be computed in the order of the log."""
    widest = rules.columns
    asked = [f"bool_or({LEANS.name}) AS leans", f"bool_and({FRESH.name}) AS fresh", *key_ends(rules.shape)]
    asked += [f"bool_or({unchanged(i)}) AS {unchanged(i)}" for i in widest.unchanged]
    asked += [f"count({old_key(i)}) > 0 AS {old_key(i)}" for i in widest.old_keys]
    staged = _Staged.of(_mapped(rows, step), folder, step.fields, rules.written, asked)
    row = staged.row
    if row["leans"]:
        return None
    columns = replace(
        widest,
        unchanged=tuple(i for i in widest.unchanged if row[unchanged(i)]),
        old_keys=tuple(i for i in widest.old_keys if row[old_key(i)]),
    )
    return staged.source(columns, rules.only_inserts(are_fresh=bool(row["fresh"])), key_range_in(row))


def _appended(rows: DataFrame, rules: NetRules, landed: LandedChanges, folder: str) -> NetSource:
    """Mode ``append``: one row per change, TRUNCATEs included."""
    columns, step = NetColumns(rules.shape, mode=rules.mode), net_of_changes(rules)
    truncates = appended_truncates(truncates_of(landed.rows), rules.shape)
    emptied = rows.sparkSession.createDataFrame(truncates, ddl(columns.fields))
    given = _mapped(rows, step).unionByName(emptied, allowMissingColumns=True)
    return _Staged.of(given, folder, step.fields, rules.shape).source(columns, True, None)


def _copies(rows: DataFrame, rules: NetRules, folder: str) -> NetSource:
    """For a table without a key: each task sums the copies that it has read, and Spark adds up these sums."""
    shape, step = rules.written, net_of_changes(rules)
    copies = summed_copies(_mapped(rows, step), shape)
    asked = [f"count_if({COPIES.name} < 0) AS going", *key_ends(shape)]
    staged = _Staged.of(copies, folder, step.fields, shape, asked, f"{COPIES.name} > 0")
    return staged.source(NetColumns(shape), not staged.row["going"], key_range_in(staged.row))


@dataclass(frozen=True)
class _Staged:
    """Rows that are in the lake as Parquet. ``row``: what one query said of all of them; ``misfits``: of them."""

    read: Frame
    row: Row
    misfits: Misfits

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        folder: str,
        fields: Sequence[NetField],
        shape: TableShape,
        asked: Sequence[str] = (),
        noting: str = "true",
    ) -> _Staged:
        """``asked``: expressions of the query. ``noting``: a condition for the rows whose misfits count."""
        rows.write.mode("overwrite").option("compression", "snappy").parquet(folder)
        schema = ddl(fields)
        staged = rows.sparkSession.read.schema(schema).parquet(folder)
        row = staged.selectExpr("count(*) AS rows", *asked, *counted_misfits(shape, noting)).collect()[0]
        misfits = misfits_among(staged, row.asDict(), shape)
        return cls(lambda own: own.read.schema(schema).parquet(folder), row, misfits)

    def source(self, columns: NetColumns, insert_only: bool, key_range: KeyRange | None) -> NetSource:
        """Only the ``columns`` that are written are read."""
        names, read, rows = [field.name for field in columns.fields], self.read, self.row["rows"]
        selected: Frame = lambda own: read(own).select(*names)  # noqa: E731
        return NetSource(columns, False, insert_only, key_range, selected, rows, misfits=self.misfits)


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
