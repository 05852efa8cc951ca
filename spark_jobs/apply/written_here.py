"""Which changes of a table this process writes itself, if it can, so that Spark need not be started for them."""

from __future__ import annotations

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.spark.session_conf import runs_here

_LEAST_INSERTS = 50_000


def is_written_here(work: TableRange, relid: int) -> bool:
    """With the engine ``auto``, any change. With ``spark``, many rows that are only inserted, where Spark's tasks would
    run on this machine, as in a snapshot: Spark has nothing to merge, and would only copy the rows into other files."""
    if work.pipeline.merge_engine == "auto":
        return True
    options, counts = work.pipeline.spark, work.changes_of(relid)
    is_insert_only = counts == ChangeCounts(inserts=counts.inserts) and not work.state.missing_operations
    return is_insert_only and counts.inserts >= _LEAST_INSERTS and runs_here(options) and not options.sets_delta
