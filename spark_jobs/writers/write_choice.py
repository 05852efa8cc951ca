"""How a table is written: by which writer, and with which strategy. The only place that decides it.

Its functions know counts, sizes and features; they open no table. ``deltalake``, in the driver's own
process, writes a few rows in 0.03 s, where a warm Spark session needs a second, and no JVM has to start. But it
rewrites whole files that hold a changed row (``touched_files``), row group by row group. So it is for small tables, for
appends, and for larger tables much of which has changed: there it takes a third of the CPU time of Spark, but has the
cores of one machine. Where the rows are not certain to be those that Spark would write, Spark writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from spark_jobs.configuration import MergeEngine, SparkOptions
from spark_jobs.lake.table_state import Strategy
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_mode import holds_changes, keeps_past
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.spark.session_conf import runs_on_driver
from spark_jobs.writers.net_source import NetSource

Engine = Literal["spark", "deltalake"]


@dataclass(frozen=True)
class TableFacts:
    """A table's data ``files``, the ``bytes`` in them and their ``rows``, deleted ones included; and of those files
    that may hold a row of the net change, ``touched_bytes`` and ``touched_rows``. Rows are None where not known.

    ``is_plain``: ``deltalake`` can open it, and it has no feature or column that we have not made.
    ``has_files_elsewhere``: files of another table are part of it, as in a shallow clone: ``deltalake`` cannot replace
    these. ``is_never_rewritten``: it promises readers what happened to single rows, as a change data feed does, or has
    a column of somebody else, whose values only a MERGE keeps.
    ``only_as_a_whole``: ``deltalake`` can replace a touched file only with all others, as one with a deletion vector.
    """

    files: int
    bytes: int
    rows: int | None
    touched_bytes: int
    touched_rows: int | None
    is_plain: bool = True
    has_files_elsewhere: bool = False
    is_never_rewritten: bool = False
    only_as_a_whole: bool = False


@dataclass(frozen=True)
class WriteWay:
    """``writer`` and ``strategy``. ``compacts``: small files are compacted in a second commit. Of Spark:
    ``whole_files``, a MERGE rewrites files and makes no deletion vectors; ``needs_vectors``, it should make them, in a
    table that is known to be large; ``interpreted``: to compile its expressions would cost more than it saves;
    ``broadcasts``: a rewrite sends the keys to all tasks."""

    writer: Engine
    strategy: Strategy
    compacts: bool = False
    whole_files: bool = False
    needs_vectors: bool = False
    interpreted: bool = False
    broadcasts: bool = False


def write_way(
    net: NetSource, table: TableFacts | None, engine: MergeEngine, limits: WriteLimits, *, compacts: bool = False
) -> WriteWay:
    """How a net change that is not empty is written. ``table``: None if nothing is known of it. ``compacts``: a
    compaction of it is due."""
    if engine == "auto" and table is not None and _is_certain(net, table):
        strategy = _of_deltalake(net, table, limits, compacts=compacts)
        if strategy is not None:
            stays_small = table.bytes <= limits.small_bytes and not holds_changes(net.columns.mode)
            return WriteWay("deltalake", strategy, compacts and strategy == "append" and not stays_small)
    return _of_spark(net, table, limits, compacts=compacts)


def snapshot_writer(engine: MergeEngine, options: SparkOptions, *, is_small: bool) -> Engine:
    """Who writes all rows of a table: with ``auto``, the driver's process where Spark's tasks would run on this machine
    too, or if the table ``is_small``. A user's settings for new Delta tables are Spark's to follow."""
    is_driver = engine == "auto" and not options.sets_delta
    return "deltalake" if is_driver and (is_small or runs_on_driver(options)) else "spark"


def compaction_writer(
    engine: MergeEngine, options: SparkOptions, layout: TableLayout, in_files: int, limits: WriteLimits
) -> Engine:
    """Who puts the small files of a table together, ``in_files`` bytes in all. With ``spark``, Spark writes every row,
    also one that was written before. What a user has said of Delta's files is Spark's to follow."""
    is_driver = engine == "auto" and not options.sets_delta and layout == NO_LAYOUT
    return "deltalake" if is_driver and in_files <= limits.streamed_bytes else "spark"


def _may_be_rewritten(net: NetSource, limits: WriteLimits) -> bool:
    """Whether Spark would rewrite the whole table if the net change is much of it. Most net changes are not."""
    if net.least != "merge" or net.rows < limits.rewritten_rows or net.keeps_values:
        return False
    return not keeps_past(net.columns.mode)


def _is_certain(net: NetSource, table: TableFacts) -> bool:
    """Whether this process is certain to leave the same rows as Spark."""
    return net.in_memory is not None and table.is_plain and not table.is_never_rewritten


def _of_spark(net: NetSource, table: TableFacts | None, limits: WriteLimits, *, compacts: bool) -> WriteWay:
    way = WriteWay("spark", net.least, compacts)
    if net.least != "merge" or net.among or table is None:
        return way
    share = limits.rewritten_share
    if _may_be_rewritten(net, limits) and not table.is_never_rewritten and _is_much(net, table.rows, limits, share):
        # and no compaction: it would be a commit between, in which the rewrite would seem to be another writer's
        is_broadcast = net.columns.shape.has_key and net.rows <= limits.broadcast_keys
        return WriteWay("spark", "rewrite", broadcasts=is_broadcast)
    touched = table.touched_bytes if net.broadcast else math.inf
    return replace(
        way,
        whole_files=touched <= limits.whole_files_bytes,
        needs_vectors=min(touched, table.bytes) > limits.whole_files_bytes,
        interpreted=touched <= limits.interpreted_bytes,
    )


def _of_deltalake(net: NetSource, table: TableFacts, limits: WriteLimits, *, compacts: bool) -> Strategy | None:
    """None if Spark does it better. A compaction that is due is left to Spark, unless the table is small, rewritten
    anyhow, or appended to."""
    if table.has_files_elsewhere:
        return "append" if net.least == "append" and not compacts else None
    if net.truncated:
        return "overwrite"
    is_small = table.bytes <= limits.small_bytes
    if holds_changes(net.columns.mode):
        return "append"
    if is_small and table.files >= limits.many_files:
        return "rewrite"
    if net.insert_only:
        return "append"
    if _is_much(net, table.rows, limits, limits.streamed_share) and table.bytes <= limits.streamed_bytes:
        return "rewrite"
    if table.only_as_a_whole:
        return "rewrite" if is_small else None
    if compacts and not is_small:
        return None
    if limits.is_little_to_read(table.touched_bytes, net.rows, _memory(net)):
        return "merge"
    is_much = _is_much(net, table.touched_rows, limits, limits.streamed_share)
    return "merge" if is_much and table.touched_bytes <= limits.streamed_bytes else None


def _is_much(net: NetSource, table_rows: int | None, limits: WriteLimits, share: float) -> bool:
    """Whether so many of ``table_rows`` change, ``share`` of them at least, that writing all anew costs less than
    Spark's MERGE."""
    return table_rows is not None and net.rows >= max(limits.rewritten_rows, table_rows * share)


def _memory(net: NetSource) -> int:
    return 0 if net.in_memory is None else int(net.in_memory.nbytes)
