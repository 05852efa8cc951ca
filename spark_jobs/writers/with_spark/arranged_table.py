"""Gives a Delta table the layout of the configuration: when Spark has written all of it, and when Spark first writes to
it in a process, as the configuration may have changed.

Only a whole write can partition a table. A clustering is set by ALTER: ``DataFrameWriter.clusterBy`` is ignored for a
path, and each overwrite removes the clustering that the table had.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier, table_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.table_features import COLUMN_MAPPING, features_of_columns
from spark_jobs.writers.with_spark.delta_table import add_features, set_properties, table_at, table_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class Arrangement:
    """How a table is arranged, whoever has done it."""

    clustered_by: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    properties: dict[str, str]

    @classmethod
    def of(cls, spark: SparkSession, path: Location) -> Arrangement:
        """Raises Spark's own exceptions, also if there is no table."""
        detail = spark.sql(f"DESCRIBE DETAIL {delta_identifier(path)}").collect()[0]
        return cls(tuple(detail["clusteringColumns"]), tuple(detail["partitionColumns"]), dict(detail["properties"]))


class _Arranged(dict[str, TableLayout]):
    """By table, the layout that this process has last given it."""


def arrange(spark: SparkSession, path: Location, layout: TableLayout) -> None:
    """Give the table what it lacks of ``layout``, once in this process. Raises Spark's own exceptions."""
    arranged = path.storage.memory(_Arranged)
    if arranged.get(path, NO_LAYOUT) == layout:
        return
    with isolated_session(spark, {}) as own:
        arrangement, table = Arrangement.of(own, path), delta_identifier(path)
        set_properties(own, path, dict(layout.properties), arrangement.properties)
        if layout.cluster_by and layout.cluster_by != arrangement.clustered_by:
            own.sql(f"ALTER TABLE {table} CLUSTER BY ({', '.join(map(quoted, layout.cluster_by))})")
        if layout.partition_by and layout.partition_by != arrangement.partitioned_by:
            columns = ", ".join(layout.partition_by)
            _log.warning("%s is not partitioned by %s yet: its next snapshot partitions it", path, columns)
    arranged[path] = layout


@contextmanager
def rewriting(
    spark: SparkSession, path: Location, layout: TableLayout, columns: Sequence[LakeColumn] | None = None
) -> Iterator[None]:
    """While all rows of the table at ``path``, if there is one, are written anew; then it is arranged. A clustering
    that somebody else has chosen stays, unless the layout has one, or a column of it is gone.

    ``columns``: those of the new schema, if they may be others; the table gets the features that they need. Where Delta
    refuses other columns because of the change data feed, and the layout asks for that feed, the feed is interrupted.
    Raises Spark's own exceptions.
    """
    before = _before(spark, path)
    if before is not None and columns is not None:
        add_features(spark, path, features_of_columns(columns))
        lake_columns, new = table_columns(spark, path), {column.name for column in columns}
        if theirs := [column.name for column in lake_columns if column.attnum is None and column.name not in new]:
            _log.warning("%s: columns that somebody else has added are removed: %s", path, ", ".join(theirs))
        if _refuses(before, layout, lake_columns, columns):
            _log.warning("%s: its change data feed has a gap here, because the table's columns change", path)
            with isolated_session(spark, {}) as own:
                set_properties(own, path, {_FEED: "false"})
    yield
    path.storage.memory(_Arranged).pop(path, None)
    kept = before.clustered_by if before is not None and not layout.columns else ()
    if kept and {name.lower() for name in kept} <= {name.lower() for name in table_at(spark, path).columns}:
        layout = replace(layout, cluster_by=kept)
    elif kept:
        _log.warning("%s is no longer clustered by %s: a column is gone", path, ", ".join(kept))
    arrange(spark, path, layout)


def _before(spark: SparkSession, path: Location) -> Arrangement | None:
    with table_errors(f"{path} cannot be read"):
        if TransactionLog.open(path) is None:
            return None
    with isolated_session(spark, {}) as own:
        return Arrangement.of(own, path)


def _refuses(
    before: Arrangement, layout: TableLayout, lake_columns: Sequence[DeltaColumn], columns: Sequence[LakeColumn]
) -> bool:
    is_fed = before.properties.get(_FEED) == dict(layout.properties).get(_FEED) == "true"
    is_mapped = COLUMN_MAPPING.key in before.properties
    return is_fed and is_mapped and [*lake_columns] != [*map(DeltaColumn.of, columns)]
