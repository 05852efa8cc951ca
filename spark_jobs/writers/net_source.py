"""The net change of one table, ready to be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import COPIES, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.writers.merge_sql import KeyRange, ranged_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class NetSource:
    """A net change ready to be written: ``read`` returns it in a given session, as ``rows`` rows of ``columns``.

    ``truncated``: the table is emptied first. ``insert_only``: every row is an upsert of a key that the table lacks;
    for a table without a key, no row is deleted. ``lenient``: deleted rows may be missing in the table. ``changes``:
    those that the range held. ``ended``: in modes ``soft_delete`` and ``history``, the TRUNCATE by which all rows of
    the table ended that are not among these rows. ``broadcast``: small enough for a broadcast join, so that the table's
    rows are not shuffled. ``in_memory``: the rows, if the driver has them. ``misfits``: of the rows, which hold other
    values in their place. ``among``: a condition in SQL for the rows ``t`` of the table that it may touch, where these
    mostly lie together; empty if there is none. ``stage`` writes what ``read`` reads; it may be called before a session
    is asked for, as a JVM starts meanwhile.
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
    misfits: Misfits = NO_MISFITS
    among: str = ""
    stage: Callable[[], object] = _nothing

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, empty or end."""
        return not self.rows and not self.truncated and self.ended is None

    @property
    def rows_in_memory(self) -> pa.Table:
        """The rows, where the driver is known to have them."""
        assert self.in_memory is not None
        return self.in_memory

    @property
    def touched_range(self) -> KeyRange | None:
        """The range of the keys of all rows of the table that it touches; None if it may touch any row."""
        return self.key_range if self.ended is None else None

    @property
    def least(self) -> Literal["append", "overwrite", "merge"]:
        """The strategy that does no more than the net change needs."""
        return "overwrite" if self.truncated else "append" if self.insert_only else "merge"

    @property
    def keeps_values(self) -> bool:
        """Whether values of some rows were not sent."""
        return bool(self.columns.unchanged or self.columns.old_keys)


def key_ends(shape: TableShape) -> list[str]:
    """The aggregates in SQL by which ``key_range_in`` knows the range of a net change of keys."""
    place, touching = ranged_key(shape), "true" if shape.has_key else f"{COPIES.name} < 0"
    if place is None:
        return ["NULL AS low", "NULL AS high", "0 AS unranged"]
    ends = (f"{end}({value(place)}) FILTER (WHERE {touching}) AS" for end in ("min", "max"))
    low, high = (f"{end} {name}" for end, name in zip(ends, ("low", "high"), strict=True))
    return [low, high, f"count_if({touching} AND {value(place)} IS NULL) AS unranged"]


def key_range_in(row: Row) -> KeyRange | None:
    """``row``: has the ``key_ends``."""
    return None if row["low"] is None or row["unranged"] else KeyRange(row["low"], row["high"])


def key_range_of(rows: pa.Table, shape: TableShape) -> KeyRange | None:
    """The range of the ``ranged_key`` column; None if there is no such column, it has nulls, or no row is matched."""
    place = ranged_key(shape)
    if not shape.has_key:
        rows = rows.filter(pc.less(rows.column(COPIES.name), 0))
    if place is None or rows.num_rows == 0 or rows.column(value(place)).null_count:
        return None
    ends = pc.min_max(rows.column(value(place))).as_py()
    return KeyRange(ends["min"], ends["max"])
