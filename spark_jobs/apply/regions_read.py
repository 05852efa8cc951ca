"""Rows read again where the source sent no events: all rows of some regions of a table, at one exact LSN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import keeps_past
from spark_jobs.schema.misfits import Misfits
from spark_jobs.schema.partition_bounds import Region
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.tables.catalogue_changes import regions_changed
from spark_jobs.writers.with_spark.staged_misfits import NotedFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RegionsRead:
    """All rows of ``regions`` at ``lsn``, the end of a window; ``at``: the time then. ``values`` reads them on
    executors, in the columns of ``shape``; ``values_on_driver`` in this process, with their misfits, None if they are
    not few. ``reason`` says what happened to the partitions.

    ``require_unaltered`` is called after the read. It raises SchemaChangeError if the table was altered meanwhile.
    """

    regions: tuple[Region, ...]
    lsn: Lsn
    at: int
    shape: TableShape
    reason: str
    values: Callable[[SparkSession], NotedFrame]
    values_on_driver: Callable[[], tuple[pa.Table, Misfits] | None]
    require_unaltered: Callable[[], None]

    def make_up_for(self, markers: Sequence[WindowMarker], state: TableState) -> bool:
        """Whether these regions cover all rows that may differ once the windows of ``markers`` are applied. Always
        False if the windows do not end at ``lsn``."""
        changed = regions_changed(markers, state)
        if not changed or markers[-1].window.hi != self.lsn or not can_be_read_by_region(state):
            return False
        return all(any(own.covers(region) for own in self.regions) for region in changed)


def can_be_read_by_region(state: TableState) -> bool:
    """Whether the Delta table mirrors the source's rows completely, in types and values that compare alike on both
    sides."""
    return not keeps_past(state.mode) and not (
        state.generation.missing_operations or state.generation.types.word or state.generation.mask or state.is_lost
    )
