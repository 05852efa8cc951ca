"""The misfits among rows that executors have decoded: Spark counts them, and the driver gets the first ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_jobs.schema.misfits import MOST_RECORDS, NO_MISFITS, Misfits
from spark_jobs.schema.net_columns import COPIES, MISFIT_LSN, misfit, misfit_fields, value
from spark_jobs.schema.table_shape import TableShape

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class NotedFrame:
    """Rows to be written. ``misfits`` returns theirs once they are written, while they can still be read."""

    rows: DataFrame
    misfits: Callable[[], Misfits]


def counted_misfits(shape: TableShape, among: str = "true") -> list[str]:
    """The number of misfits in each column, as SQL. ``among``: a condition for rows."""
    names = [field.name for field in misfit_fields(shape) if field != MISFIT_LSN]
    # without FILTER, which observed metrics cannot have
    return [f"count_if({name} IS NOT NULL AND {among}) AS {name}" for name in names]


def misfits_among(rows: DataFrame, counted: Mapping[str, Any], shape: TableShape) -> Misfits:
    """Those of ``rows``, of which ``counted`` has the results of ``counted_misfits``. If there are any, the rows are
    read."""
    places = [i for i in range(len(shape.columns)) if counted.get(misfit(i))]
    if not places:
        return NO_MISFITS
    names = [*map(value, sorted({*shape.key_indices, *places})), *map(misfit, places)]
    names += [name for name in (COPIES.name, MISFIT_LSN.name) if name in rows.columns]
    some = rows.where(" OR ".join(f"{misfit(i)} IS NOT NULL" for i in places)).select(*names).limit(MOST_RECORDS)
    counts = {shape.columns[i].name: int(counted[misfit(i)]) for i in places}
    return replace(Misfits.of(some.toArrow(), shape), counts=counts)
