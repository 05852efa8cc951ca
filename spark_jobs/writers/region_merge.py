"""One MERGE of a net change and of the rows of some regions that were read again. The rows read replace everything that
the table holds of these regions.

A region is a condition on the key. So each row of the table and of the net change is either inside, and the rows read
decide what becomes of it, or outside, and the net change decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.retries import again_when_concurrent
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, unchanged, value
from spark_jobs.schema.partition_bounds import BoundColumn, Region
from spark_jobs.schema.region_sql import in_spark
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import is_concurrent_commit
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import NET_CHANGE, in_range, kept_values_query, merge_statement, quoted
from spark_jobs.writers.net_source import Frame, NetSource
from spark_jobs.writers.table_commit import Provenance, committed_version, committing_session, has_committed, overtaking
from spark_jobs.writers.variants import with_variants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOVED = "moved_rows"


@dataclass(frozen=True)
class RegionRows:
    """All ``count`` rows of ``regions`` in the source, in the columns of ``shape``; ``read`` returns their values in a
    given session. ``version``: the Delta version at which the table's state was read. ``misfits``: of these rows."""

    regions: tuple[Region, ...]
    shape: TableShape
    read: Frame
    count: int
    version: int
    misfits: Misfits = NO_MISFITS


@again_when_concurrent(is_concurrent_commit)
def write_regions(
    spark: SparkSession,
    path: Location,
    net: NetSource | None,
    rows: RegionRows,
    provenance: Provenance,
) -> int:
    """Commit the rows read, and the net change outside the regions, if there is one. Returns the Delta version.

    Commits even if no row changes, to record how far the table is. Raises as ``write_net`` does.
    """
    with overtaking(path), committing_session(spark, path, provenance) as own:
        kept = net.columns.unchanged if net is not None else ()
        read = _as_change(with_variants(rows.read(own), rows.shape.columns), UPSERT, rows.shape, kept)
        deletes = _gone(own, path, rows)
        changes = read.unionByName(_as_change(deletes, DELETE, rows.shape, kept))
        if net is not None:
            changes = changes.unionByName(_outside(own, path, net, rows))
        if net is not None or rows.count or not deletes.isEmpty():
            changes.createOrReplaceTempView(NET_CHANGE)
            own.sql(merge_statement(path, rows.shape, kept, None, among=_among(net, rows)))
        if not has_committed(own):
            own.read.format("delta").load(path).where("false").write.format("delta").mode("append").save(path)
        return committed_version(own, path, provenance)


def _outside(own: SparkSession, path: str, net: NetSource, rows: RegionRows) -> DataFrame:
    """The net change outside the regions. An update that moves a row out of a region either sends the row whole, or
    is in one partition before and after, which was neither attached nor detached: so the table has the old row."""
    shape, kept, moved = rows.shape, net.columns.unchanged, net.columns.old_keys
    among = _condition(rows, value)
    outside = with_variants(net.read(own), shape.columns).where(f"NOT ({among})")
    if kept and moved:
        outside.createOrReplaceTempView(_MOVED)
        outside = own.sql(kept_values_query(path, shape, kept, moved, _MOVED))
    return outside.select(*_columns(shape, kept))


def _gone(own: SparkSession, path: str, rows: RegionRows) -> DataFrame:
    """The keys in the regions that the table has and the source does not. Read at ``rows.version``: an OPTIMIZE since
    then shows the same rows."""
    shape = rows.shape
    table = own.read.format("delta").option("versionAsOf", rows.version).load(path)
    keys = [f"{quoted(shape.columns[place].name)} AS {value(place)}" for place in shape.key_indices]
    table_keys = table.where(_condition(rows, lambda place: quoted(shape.columns[place].name))).selectExpr(*keys)
    if not rows.count:
        return table_keys
    names = [value(place) for place in shape.key_indices]
    return table_keys.join(rows.read(own).select(*names), names, "left_anti")


def _as_change(frame: DataFrame, operation: int, shape: TableShape, kept: Sequence[int]) -> DataFrame:
    """The rows of ``frame`` as changes of this operation; columns that it lacks are null."""
    names = set(frame.columns)
    values = [
        value(i) if value(i) in names else f"CAST(NULL AS {column.lake_type.sql}) AS {value(i)}"
        for i, column in enumerate(shape.columns)
    ]
    flags = [f"false AS {unchanged(i)}" for i in kept]
    return frame.selectExpr(f"CAST({operation} AS tinyint) AS {OPERATION}", *values, *flags)


def _columns(shape: TableShape, kept: Sequence[int]) -> list[str]:
    return [OPERATION, *map(value, range(len(shape.columns))), *map(unchanged, kept)]


def _among(net: NetSource | None, rows: RegionRows) -> str:
    """A condition that holds for every row of the table that can match, by which Delta skips files; empty if there is
    none."""
    regions = _condition(rows, lambda place: f"t.{quoted(rows.shape.columns[place].name)}")
    if net is None or not net.rows:
        return f"({regions})"
    return "" if net.key_range is None else f"({regions} OR {in_range(rows.shape, net.key_range)})"


def _condition(rows: RegionRows, term: Callable[[int], str]) -> str:
    """The condition that a row is in a region. ``term``: the expression for the shape's column at an index."""
    places = {column.attnum: place for place, column in enumerate(rows.shape.columns)}

    def of(column: BoundColumn) -> str:
        return term(places[column.attnum])

    return in_spark(rows.regions, of)
