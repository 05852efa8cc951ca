"""The columns that a lake's table would have, made from what the change log holds: for stages that run without one."""

from __future__ import annotations

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.schema.column_changes import DeltaColumn


def held_columns(log: ChangeLog, relid: int) -> tuple[DeltaColumn, ...]:
    """As the newest landed facts of the relation have them."""
    last = log.checkpoint()
    assert last is not None
    facts = log.facts(0, last.ordinal, [relid])[-1].facts
    return tuple(DeltaColumn(column.attname, column.lake_type.sql, column.attnum) for column in facts.columns)
