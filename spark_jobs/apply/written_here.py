"""Which changes of a table this process writes itself, if it can, so that Spark need not be started for them."""

from __future__ import annotations

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.lake.opened_table import OpenedTable
from spark_jobs.lake.rewrite import is_much
from spark_jobs.spark.session_conf import runs_on_driver

_LEAST_CHANGES = 50_000


def is_written_here(work: TableRange, opened: OpenedTable | None) -> bool:
    """With the engine ``auto``, any change of a table that this process can open. With ``spark``, where Spark's tasks
    would run on this machine, what it would write whole and not merge, as in a snapshot: many rows that are only
    inserted, and a table much of which has changed."""
    if opened is None:
        return False
    if work.pipeline.merge_engine == "auto":
        return True
    options, counts = work.pipeline.spark, work.changes
    if counts.rows < _LEAST_CHANGES or not runs_on_driver(options) or options.sets_delta:
        return False
    is_insert_only = counts == ChangeCounts(inserts=counts.inserts) and not work.state.generation.missing_operations
    return is_insert_only or is_much(counts.rows, opened.rows)
