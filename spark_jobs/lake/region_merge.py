"""A net change and the rows of some regions, read again, in one MERGE: those rows take the place of all that the table
holds of the regions.

A region is a condition on the key. So each row of table and net change is either in it, and then what was read says
what becomes of it, or outside, and then the net change does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.lake.merge_sql import NET_CHANGE, in_range, kept_values_query, merge_statement, quoted
from spark_jobs.lake.net_write import Frame, NetSource
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, has_committed, overtaking
from spark_jobs.lake.variants import with_variants
from spark_jobs.retries import again_when_concurrent
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, unchanged, value
from spark_jobs.schema.partition_bounds import BoundColumn, Region
from spark_jobs.schema.region_sql import in_spark
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import is_concurrent_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOVED = "moved_rows"


@dataclass(frozen=True)
class RegionRows:
    """All ``count`` rows that the source has of ``regions``, in the columns of ``shape``; ``read`` gives their values
    to a session. ``version``: that of the Delta table which is brought on."""

    regions: tuple[Region, ...]
    shape: TableShape
    read: Frame
    count: int
    version: int


@again_when_concurrent(is_concurrent_commit)
def write_regions(
    spark: SparkSession,
    path: str,
    net: NetSource | None,
    rows: RegionRows,
    provenance: Provenance,
) -> int:
    """Commit what was read, and a net change outside of it, if there is one. Returns the Delta version.

    It is a commit even where no row changes: it says how far the table is. Raises as ``write_net`` does.
    """
    with overtaking(path), committing_session(spark, provenance) as own:
        kept = net.columns.unchanged if net is not None else ()
        read = _as_change(with_variants(rows.read(own), rows.shape.columns), UPSERT, rows.shape, kept)
        gone = _gone(own, path, rows)
        changes = read.unionByName(_as_change(gone, DELETE, rows.shape, kept))
        if net is not None:
            changes = changes.unionByName(_outside(own, path, net, rows))
        if net is not None or rows.count or not gone.isEmpty():
            changes.createOrReplaceTempView(NET_CHANGE)
            own.sql(merge_statement(path, rows.shape, kept, None, among=_among(net, rows)))
        if not has_committed(own):
            own.read.format("delta").load(path).where("false").write.format("delta").mode("append").save(path)
        return committed_version(own, path)


def _outside(own: SparkSession, path: str, net: NetSource, rows: RegionRows) -> DataFrame:
    """The net change of all other rows. One that has moved out of a region was in the table before, or comes whole: the
    two are of one partition, which then has neither come nor gone."""
    shape, kept, moved = rows.shape, net.columns.unchanged, net.columns.old_keys
    among = _condition(rows, value)
    outside = with_variants(net.read(own), shape.columns).where(f"NOT ({among})")
    if kept and moved:
        outside.createOrReplaceTempView(_MOVED)
        outside = own.sql(kept_values_query(path, shape, kept, moved, _MOVED))
    return outside.select(*_columns(shape, kept))


def _gone(own: SparkSession, path: str, rows: RegionRows) -> DataFrame:
    """The keys that the table has in the regions and the source has not. Of the version that is brought on: an OPTIMIZE
    since shows the same rows."""
    shape = rows.shape
    held = own.read.format("delta").option("versionAsOf", rows.version).load(path)
    keys = [f"{quoted(shape.columns[place].name)} AS {value(place)}" for place in shape.key_indices]
    there = held.where(_condition(rows, lambda place: quoted(shape.columns[place].name))).selectExpr(*keys)
    if not rows.count:
        return there
    names = [value(place) for place in shape.key_indices]
    return there.join(rows.read(own).select(*names), names, "left_anti")


def _as_change(frame: DataFrame, operation: int, shape: TableShape, kept: Sequence[int]) -> DataFrame:
    """``frame`` has values; those that it lacks are null."""
    there = set(frame.columns)
    values = [
        value(i) if value(i) in there else f"CAST(NULL AS {column.lake_type.sql}) AS {value(i)}"
        for i, column in enumerate(shape.columns)
    ]
    flags = [f"false AS {unchanged(i)}" for i in kept]
    return frame.selectExpr(f"CAST({operation} AS tinyint) AS {OPERATION}", *values, *flags)


def _columns(shape: TableShape, kept: Sequence[int]) -> list[str]:
    return [OPERATION, *map(value, range(len(shape.columns))), *map(unchanged, kept)]


def _among(net: NetSource | None, rows: RegionRows) -> str:
    """What all rows of the table meet that are matched: Delta skips files by it. Empty: nothing is known."""
    regions = _condition(rows, lambda place: f"t.{quoted(rows.shape.columns[place].name)}")
    if net is None or not net.rows:
        return f"({regions})"
    return "" if net.key_range is None else f"({regions} OR {in_range(rows.shape, net.key_range)})"


def _condition(rows: RegionRows, term: Callable[[int], str]) -> str:
    """``term`` gives the expression of the column at a place of the shape."""
    places = {column.attnum: place for place, column in enumerate(rows.shape.columns)}

    def of(column: BoundColumn) -> str:
        return term(places[column.attnum])

    return in_spark(rows.regions, of)
