"""How a table is written: by which writer, and with which strategy. The only place that decides it.

Its functions know counts, sizes and features; they open no table and read no row. ``deltalake``, in the driver's own
process, writes a few rows in 0.03 s, where a warm Spark session needs a second, and no JVM has to start. But its MERGE
rewrites whole files that hold a changed row. So it is for small tables, for appends, and for larger tables much of
which has changed, as long as their rows fit in memory: there it takes a third of the CPU time of Spark. Where the rows
are not certain to be those that Spark would write, Spark writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from spark_jobs.configuration import MergeEngine, SparkOptions
from spark_jobs.lake.table_state import Strategy
from spark_jobs.spark.session_conf import runs_here
from spark_jobs.table_mode import Mode, keeps_past
from spark_jobs.write_limits import WriteLimits

Engine = Literal["spark", "deltalake"]


@dataclass(frozen=True)
class ChangeFacts:
    """A net change of ``rows`` rows. ``bytes``: what they take in the driver's memory; None if they are not there.

    ``needs``: ``append`` if it only adds rows, ``overwrite`` after a TRUNCATE that leaves nothing, else ``merge``.
    ``has_plain_key``: no part of the key is a float. ``keeps_values``: of some rows, values were not sent.
    ``ends_all``: a TRUNCATE ended the table's rows, which stay in it. ``is_broadcast``: Spark need not shuffle the
    table's rows. ``compacts``: a compaction of the table is due.
    """

    rows: int
    bytes: int | None
    needs: Literal["append", "overwrite", "merge"]
    mode: Mode
    has_key: bool
    has_plain_key: bool
    keeps_values: bool
    ends_all: bool
    is_broadcast: bool
    compacts: bool


@dataclass(frozen=True)
class TableFacts:
    """A table's data ``files``, the ``bytes`` in them and their ``rows``, deleted ones included; and of those files
    that may hold a row of the net change, ``touched_bytes`` and ``touched_rows``. Rows are None where not known.

    ``is_plain``: ``deltalake`` can open it, and it has no feature or column that we have not made.
    ``has_files_elsewhere``: files of another table are part of it, as in a shallow clone: ``deltalake`` cannot replace
    these. ``is_read_row_by_row``: it promises readers what happened to single rows, as a change data feed does.
    """

    files: int
    bytes: int
    rows: int | None
    touched_bytes: int
    touched_rows: int | None
    is_plain: bool = True
    has_files_elsewhere: bool = False
    is_read_row_by_row: bool = False


@dataclass(frozen=True)
class WriteWay:
    """``writer`` and ``strategy``. Of Spark: ``compacts``, small files are compacted in a second commit;
    ``whole_files``, a MERGE rewrites files and makes no deletion vectors; ``interpreted``: to compile its expressions
    would cost more than it saves; ``broadcasts``: a rewrite sends the keys to all tasks."""

    writer: Engine
    strategy: Strategy
    compacts: bool = False
    whole_files: bool = False
    interpreted: bool = False
    broadcasts: bool = False


def write_way(change: ChangeFacts, table: TableFacts | None, engine: MergeEngine, limits: WriteLimits) -> WriteWay:
    """How a net change that is not empty is written. ``table``: None if nothing is known of it."""
    if engine == "auto" and table is not None and _is_certain(change, table):
        strategy = _of_deltalake(change, table, limits)
        if strategy is not None:
            return WriteWay("deltalake", strategy)
    return _of_spark(change, table, limits)


def snapshot_writer(engine: MergeEngine, mode: Mode, options: SparkOptions, *, is_small: bool) -> Engine:
    """Who writes all rows of a table: with ``auto``, the driver's process where Spark's tasks would run on this machine
    too, or if the table ``is_small``. A user's settings for new Delta tables are Spark's to follow."""
    is_driver = engine == "auto" and not keeps_past(mode) and not options.sets_delta
    return "deltalake" if is_driver and (is_small or runs_here(options)) else "spark"


def may_be_rewritten(change: ChangeFacts, limits: WriteLimits) -> bool:
    """Whether Spark would write the whole table anew, if the net change is much of it: most are not worth a look."""
    if change.needs != "merge" or change.rows < limits.rewritten_rows:
        return False
    return change.has_key and not (change.keeps_values or keeps_past(change.mode))


def _is_certain(change: ChangeFacts, table: TableFacts) -> bool:
    """Whether ``deltalake`` is certain to leave the same rows as Spark. Spark treats NaN as equal to NaN, and 0 to -0;
    DataFusion joins floats by their bits."""
    if change.bytes is None or not table.is_plain or table.is_read_row_by_row:
        return False
    if keeps_past(change.mode) or change.needs == "overwrite" or change.ends_all:
        return False
    return change.has_key and change.has_plain_key


def _of_spark(change: ChangeFacts, table: TableFacts | None, limits: WriteLimits) -> WriteWay:
    way = WriteWay("spark", change.needs, change.compacts)
    if change.needs != "merge" or table is None:
        return way
    if may_be_rewritten(change, limits) and not table.is_read_row_by_row and _is_much(change, table.rows, limits):
        return replace(way, strategy="rewrite", broadcasts=change.rows <= limits.broadcast_keys)
    touched = table.touched_bytes if change.is_broadcast else math.inf
    return replace(
        way, whole_files=touched <= limits.whole_files_bytes, interpreted=touched <= limits.interpreted_bytes
    )


def _of_deltalake(change: ChangeFacts, table: TableFacts, limits: WriteLimits) -> Strategy | None:
    """None if Spark does it better. A compaction that is due is left to Spark, unless the table is small or rewritten
    anyhow."""
    appends, compacts = change.needs == "append", change.compacts
    if table.has_files_elsewhere:
        return "append" if appends and not compacts else None
    is_small = table.bytes <= limits.small_bytes
    if is_small and table.files >= limits.many_files and _fits(change, table.rows, table.bytes, limits):
        return "rewrite"
    if appends:
        return None if compacts and not is_small else "append"
    if _is_much(change, table.rows, limits) and _fits(change, table.rows, table.bytes, limits):
        return "rewrite"
    if compacts and not is_small:
        return None
    if limits.is_little_to_read(table.touched_bytes, change.rows, change.bytes or 0):
        return "merge"
    is_much = _is_much(change, table.touched_rows, limits)
    return "merge" if is_much and _fits(change, table.touched_rows, table.touched_bytes, limits) else None


def _is_much(change: ChangeFacts, held: int | None, limits: WriteLimits) -> bool:
    """Whether so many of ``held`` rows change that writing all anew costs less than a MERGE."""
    return held is not None and change.rows >= max(limits.rewritten_rows, held * limits.rewritten_share)


def _fits(change: ChangeFacts, held: int | None, in_files: int, limits: WriteLimits) -> bool:
    """Whether ``held`` rows fit in memory, if they are as wide as the changed ones. Rows that go have no values but the
    key's, so the bytes that these rows take in files are limited too."""
    if held is None or change.bytes is None or in_files > limits.in_files_bytes:
        return False
    return held * change.bytes <= limits.in_memory_bytes * change.rows
