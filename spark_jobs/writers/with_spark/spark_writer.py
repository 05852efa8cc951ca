"""Net changes written by Spark: one append, one overwrite, one MERGE or one rewrite of the table.

A MERGE joins the table and the net change, finds the files with matching rows, and joins again. A rewrite needs one
join: it leaves out the rows that the net change replaces or deletes, and writes all others beside its rows. For 750,000
changed rows of a million this took two thirds of the CPU time, and it leaves files without deletion vectors. Delta's
transaction begins when the overwrite does, shortly after the version to read is chosen. Commits after that beginning
conflict, and the write is repeated; ``_check_nothing_undone`` looks at those before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.delta.commit import Commit
from spark_jobs.delta.table import table_errors, table_gone
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import LakeError
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.retries import again_when_concurrent
from spark_jobs.schema.net_columns import OPERATION, UPSERT, value
from spark_jobs.spark.errors import is_concurrent_commit
from spark_jobs.spark.session_conf import INTERPRETED
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import MOVED, NET_CHANGE, key_matches, named_columns, quoted
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.table_commit import Provenance, committed_version, committing_session
from spark_jobs.writers.table_features import DELETION_VECTORS
from spark_jobs.writers.with_spark.arranged_table import arrange, rewriting
from spark_jobs.writers.with_spark.copies_merge import added_copies, merge_copies, with_copies
from spark_jobs.writers.with_spark.delta_table import add_features, table_at
from spark_jobs.writers.with_spark.past_sql import kept_values, merge_of_mode, named_mode_columns
from spark_jobs.writers.with_spark.variants import with_variants
from spark_jobs.writers.write_choice import WriteWay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
_WHOLE_FILES = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}


@dataclass(frozen=True)
class SparkWriter:
    """Writes to the table at ``path``, which has this ``layout``. See ``TableWriter``.

    Raises Spark's own exceptions. After a conflict with a foreign commit, such as an OPTIMIZE, the write is retried.
    """

    spark: SparkSession
    path: Location
    layout: TableLayout = NO_LAYOUT

    def write(self, net: NetSource, way: WriteWay, provenance: Provenance) -> int:
        if way.strategy in ("append", "merge"):
            arrange(self.spark, self.path, self.layout)
            return write_by_spark(self.spark, self.path, net, way, provenance)
        with rewriting(self.spark, self.path, self.layout):
            return write_by_spark(self.spark, self.path, net, way, provenance)


@again_when_concurrent(is_concurrent_commit)
def write_by_spark(spark: SparkSession, path: Location, net: NetSource, way: WriteWay, provenance: Provenance) -> int:
    read = newest_version(path) if way.strategy == "rewrite" else None
    if way.needs_vectors:
        add_features(spark, path, [DELETION_VECTORS])
    with committing_session(spark, path, provenance, compact=way.compacts) as own:
        settings = (_WHOLE_FILES if way.whole_files else {}) | (INTERPRETED if way.interpreted else {})
        for key, setting in settings.items():
            own.conf.set(key, setting)
        rows = with_variants(net.read(own), net.columns.shape.columns)
        if read is not None:
            _rewrite(rows, path, net, way, read)
        elif way.strategy != "merge":
            _write_all(rows, path, net)
        elif net.columns.shape.has_key:
            _merge(rows, path, net)
        else:
            merge_copies(rows, path, net)
        version = committed_version(own, path, provenance)
    if read is not None:
        _check_nothing_undone(path, read, version)
    return version


def newest_version(path: Location) -> int:
    """The version that a rewrite begins with."""
    with table_errors(f"{path} cannot be read"):
        log = TransactionLog.open(path)
    if log is None:
        raise table_gone(path)
    return log.version


def _write_all(rows: DataFrame, path: str, net: NetSource) -> None:
    """Append or overwrite. Only upserts count here. After a TRUNCATE the overwrite may have no rows, but still
    commits."""
    shape, mode = net.columns.shape, net.columns.mode
    if holds_changes(mode):
        new = rows
    elif shape.has_key:
        new = rows.where(f"{OPERATION} = {UPSERT}")
    else:
        new = added_copies(rows, net)
    written = new.selectExpr(*named_columns(shape.columns), *named_mode_columns(mode))
    written.write.format("delta").mode("overwrite" if net.truncated else "append").save(path)


def _merge(rows: DataFrame, path: str, net: NetSource) -> None:
    own = rows.sparkSession
    if (filled := kept_values(path, net.columns)) is not None:
        rows.createOrReplaceTempView(MOVED)
        own.sql(filled).createOrReplaceTempView(NET_CHANGE)
    else:
        rows.createOrReplaceTempView(NET_CHANGE)
        # MERGE reads its source twice, and by default materializes every source that is not a Delta table, as the two
        # reads might differ. Ours is staged files or rows in the plan. This saves 0.9 s of 6.6 s for 650,000 rows
        own.conf.set(_MATERIALIZE, "none")
        # it shuffles only rows that match, and more tasks cost more than they save: ten rows took 1.6 s in four
        # partitions and 1.2 s in one. (After a TRUNCATE all rows of the table end, which may be many)
        if net.broadcast and net.ended is None:
            own.conf.set("spark.sql.shuffle.partitions", "1")
    own.sql(merge_of_mode(path, net))


def _rewrite(rows: DataFrame, path: Location, net: NetSource, way: WriteWay, version: int) -> None:
    """Commit the table as of ``version`` with the net change ``rows`` in it."""
    from pyspark.sql.functions import broadcast, expr

    shape, table = net.columns.shape, table_at(rows.sparkSession, path, version)
    if not shape.has_key:
        written = with_copies(rows, table, net)
        written.write.format("delta").mode("overwrite").save(path)
        return
    keys = rows.select(*(value(place) for place in shape.key_indices))
    if way.broadcasts:
        keys = broadcast(keys)
    unchanged = table.alias("t").join(keys.alias("s"), expr(" AND ".join(key_matches(shape, None))), "left_anti")
    upserts = rows.where(f"{OPERATION} = {UPSERT}").selectExpr(*named_columns(shape.columns))
    names = [quoted(column.name) for column in shape.columns]
    unchanged.select(*names).union(upserts.select(*names)).write.format("delta").mode("overwrite").save(path)


def _check_nothing_undone(path: Location, read: int, committed: int) -> None:
    """Raise LakeError if another writer changed rows between the version ``read`` and the beginning of the transaction
    that made the commit ``committed``: the rewrite has undone that change."""
    commits = TransactionLog.of_version(path, committed).commits()
    began = next((int(each["readVersion"]) for each in next(commits).actions("commitInfo")), read)
    for commit in commits:
        if commit.version <= read:
            return
        if commit.version <= began and _changes_rows(commit):
            raise LakeError(
                f"{path}: commit {commit.version} of another writer was undone by commit {committed}, which rewrote the"
                f" table as of version {read}",
                hint="make that change again; while a table is followed, nobody else should write to it",
            )


def _changes_rows(commit: Commit) -> bool:
    actions: Iterable[dict[str, object]] = (*commit.actions("add"), *commit.actions("remove"))
    return any(action.get("dataChange", True) for action in actions)
