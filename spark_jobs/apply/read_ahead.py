"""While the driver computes a large net change, Spark reads the table's Delta log, which it needs next.

The first write of a session loads the code for this, too: 1.8 of its 10.5 s of CPU time no longer come after the net
change.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from spark_jobs.apply.table_range import TableRange
from spark_jobs.writers.delta_table import table_at


@contextmanager
def log_read_ahead(work: TableRange) -> Iterator[None]:
    """Nothing depends on it: a failure is ignored, as the write will meet it again. Nothing is read if this process may
    write the change, for few changes, and where executors compute the net change."""
    limits = work.pipeline.writes
    if not work.is_for_spark or not limits.read_ahead_bytes <= work.bytes <= limits.on_driver_bytes:
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as ahead:
        ahead.submit(lambda: table_at(work.run.spark(), work.path).inputFiles())
        yield
