"""When the transactions of windows were committed at the source, read from the change log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from spark_jobs.change_log.log import ChangeLog


@dataclass(frozen=True)
class WindowTimes:
    """The first and the last commit time of a window, UTC."""

    first: datetime
    last: datetime


def window_times(log: ChangeLog, first_ordinal: int, last_ordinal: int) -> Mapping[int, WindowTimes]:
    """Of the windows ``first_ordinal`` to ``last_ordinal``, both inclusive, by ordinal; without windows that hold no
    transaction. Memory does not grow with them. Raises LakeError."""
    by_ordinal: dict[int, WindowTimes] = {}
    for batch in log.commit_times(first_ordinal, last_ordinal):
        table = pa.Table.from_batches([batch]).group_by("window")
        for row in table.aggregate([("commit_time", "min"), ("commit_time", "max")]).to_pylist():
            times = WindowTimes(row["commit_time_min"], row["commit_time_max"])
            known = by_ordinal.get(row["window"], times)
            by_ordinal[row["window"]] = WindowTimes(min(known.first, times.first), max(known.last, times.last))
    return by_ordinal
