"""Write the net change of one table to its Delta table: one append, one overwrite or one MERGE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.lake.copies_merge import copied_rows, merge_copies
from spark_jobs.lake.merge_sql import (
    NET_CHANGE,
    KeyRange,
    kept_values_query,
    merge_statement,
    named_columns,
    ranged_key,
)
from spark_jobs.lake.opened_table import OpenedTable, file_sizes
from spark_jobs.lake.past_sql import (
    history_statement,
    named_mode_columns,
    open_values_query,
    soft_delete_statement,
)
from spark_jobs.lake.rewrite import check_nothing_undone, rewrite, version_to_rewrite
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, overtaking
from spark_jobs.lake.table_state import Strategy
from spark_jobs.lake.variants import with_variants
from spark_jobs.retries import again_when_concurrent
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import COPIES, OPERATION, UPSERT, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import is_concurrent_commit
from spark_jobs.spark.session_conf import INTERPRETED
from spark_jobs.storage import Location
from spark_jobs.table_mode import holds_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"

_MOVED = "moved_rows"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
# Up to this many bytes, a MERGE rewrites whole files, which takes one join less than deletion vectors
_REWRITTEN_BYTES = 8 << 20
_REWRITTEN = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
# Up to this many it interprets expressions, too. Ten of 1,000 rows took 3.3 CPU seconds with deletion vectors and
# compiled code, and 1.5 like this; ten of 30,000 rows (1.4 MB) 3.4 and 1.9
_INTERPRETED_BYTES = 2 << 20


@dataclass(frozen=True)
class NetSource:
    """A net change ready to be written: ``read`` returns it in a given session, as ``rows`` rows of ``columns``.

    ``truncated``: the table is emptied first. ``insert_only``: every row is an upsert of a key that the table lacks;
    for a table without a key, no row goes. ``lenient``: rows that go may be missing in the table. ``changes``: those
    that the range held. ``ended``: in modes ``soft_delete`` and ``history``, the TRUNCATE by which all rows of the
    table ended that are not among these rows. ``broadcast``: small enough for a broadcast join, so that the table's
    rows are not shuffled. ``in_memory``: the rows, if the driver has them.
    """

    columns: NetColumns
    truncated: bool
    insert_only: bool
    key_range: KeyRange | None
    read: Frame
    rows: int
    changes: ChangeCounts = NO_CHANGES
    lenient: bool = False
    ended: Moment | None = None
    broadcast: bool = False
    in_memory: pa.Table | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, empty or end."""
        return not self.rows and not self.truncated and self.ended is None


def key_range_of(rows: pa.Table, shape: TableShape) -> KeyRange | None:
    """The range of the ``ranged_key`` column; None if there is no such column, it has nulls, or no row is matched."""
    place = ranged_key(shape)
    if not shape.has_key:
        rows = rows.filter(pc.less(rows.column(COPIES.name), 0))
    if place is None or rows.num_rows == 0 or rows.column(value(place)).null_count:
        return None
    ends = pc.min_max(rows.column(value(place))).as_py()
    return KeyRange(ends["min"], ends["max"])


@again_when_concurrent(is_concurrent_commit)
def write_net(
    spark: SparkSession,
    path: Location,
    net: NetSource,
    provenance: Provenance,
    *,
    compact: bool = False,
    opened: OpenedTable | None = None,
) -> int:
    """Commit a net change that is not empty. Returns the Delta version. ``compact``: small files are put together;
    ``opened``: the table before it, where that is known: its file sizes say how to merge.

    Raises OvertakenError when a writer of ours has committed since the table's state was read, and Spark's own
    exceptions. After a conflict with a foreign commit, such as an OPTIMIZE, the write is retried.
    """
    shape = net.columns.shape
    is_merged = not (net.truncated or net.insert_only)
    rewritten = version_to_rewrite(path, net.columns, net.rows) if is_merged else None
    provenance = replace(provenance, strategy=_strategy(net, is_rewritten=rewritten is not None))
    with overtaking(path), committing_session(spark, provenance, compact=compact) as own:
        for key, setting in _conf_of_small(opened, net).items():
            own.conf.set(key, setting)
        rows = with_variants(net.read(own), shape.columns)
        if not is_merged:
            _write_all(rows, path, net)
        elif rewritten is not None:
            rewrite(rows, path, net.columns, net.rows, rewritten)
        elif net.columns.mode == "history":
            _merge_history(rows, path, net)
        elif shape.has_key:
            _merge_by_key(rows, path, net)
        else:
            merge_copies(rows, path, shape, net.key_range, lenient=net.lenient)
        version = committed_version(own, path, provenance)
    if rewritten is not None:
        check_nothing_undone(path, rewritten, version)
    return version


def _strategy(net: NetSource, *, is_rewritten: bool) -> Strategy:
    if net.truncated:
        return "overwrite"
    if net.insert_only:
        return "append"
    return "rewrite" if is_rewritten else "merge"


def _conf_of_small(opened: OpenedTable | None, net: NetSource) -> dict[str, str]:
    """The settings of a MERGE of few rows into small files."""
    if opened is None or net.truncated or net.insert_only or not net.broadcast:
        return {}
    key_range = net.key_range if net.ended is None else None  # a TRUNCATE that ends rows touches all of them
    touched = file_sizes(opened, net.columns.shape, key_range).touched
    if touched > _REWRITTEN_BYTES:
        return {}
    return _REWRITTEN if touched > _INTERPRETED_BYTES else _REWRITTEN | INTERPRETED


def _write_all(rows: DataFrame, path: str, net: NetSource) -> None:
    """Append or overwrite. Only upserts count here. After a TRUNCATE the overwrite may have no rows, but still
    commits."""
    shape, mode = net.columns.shape, net.columns.mode
    if holds_changes(mode):
        come = rows
    elif shape.has_key:
        come = rows.where(f"{OPERATION} = {UPSERT}")
    else:
        come = copied_rows(rows, shape, lenient=net.lenient)
    written = come.selectExpr(*named_columns(shape.columns), *named_mode_columns(mode))
    written.write.format("delta").mode("overwrite" if net.truncated else "append").save(path)


def _merge_by_key(rows: DataFrame, path: str, net: NetSource) -> None:
    own, shape = rows.sparkSession, net.columns.shape
    kept, moved = net.columns.unchanged, net.columns.old_keys
    if kept and moved:
        rows.createOrReplaceTempView(_MOVED)
        others = [column.net for column in mode_columns(net.columns.mode)]
        own.sql(kept_values_query(path, shape, kept, moved, _MOVED, others)).createOrReplaceTempView(NET_CHANGE)
    else:
        rows.createOrReplaceTempView(NET_CHANGE)
        # MERGE reads its source twice, and by default materializes every source that is not a Delta table, as the two
        # reads might differ. Ours is staged files or rows in the plan. This saves 0.9 s of 6.6 s for 650,000 rows
        own.conf.set(_MATERIALIZE, "none")
        _one_partition(own, net)
    if net.columns.mode == "soft_delete":
        own.sql(soft_delete_statement(path, net.columns, net.key_range, net.ended))
    else:
        own.sql(merge_statement(path, shape, kept, net.key_range))


def _merge_history(rows: DataFrame, path: str, net: NetSource) -> None:
    own = rows.sparkSession
    if net.columns.unchanged:
        rows.createOrReplaceTempView(_MOVED)
        own.sql(open_values_query(path, net.columns, _MOVED)).createOrReplaceTempView(NET_CHANGE)
    else:
        rows.createOrReplaceTempView(NET_CHANGE)
        own.conf.set(_MATERIALIZE, "none")
        _one_partition(own, net)
    own.sql(history_statement(path, net.columns, net.key_range, net.ended))


def _one_partition(own: SparkSession, net: NetSource) -> None:
    """Use one shuffle partition for few rows: the MERGE shuffles only rows that match, and more tasks cost more than
    they save. Ten rows took 1.6 s in four partitions and 1.2 s in one. (After a TRUNCATE all rows of the table end,
    which may be many.)"""
    if net.broadcast and net.ended is None:
        own.conf.set("spark.sql.shuffle.partitions", "1")
