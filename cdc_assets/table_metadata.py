"""What a materialisation says of a Delta table: its columns, rows, lineage, and the windows' numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.external_assets import source_key
from spark_jobs.change_counts import NO_CHANGES
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_metadata(
    spark: SparkSession, blueprint: Blueprint, table: QualifiedName, key: Sequence[str]
) -> Mapping[str, Any]:
    """Columns, key, row count and column lineage, read from the Delta table. ``key`` identifies a row."""
    frame = spark.read.format("delta").load(blueprint.pipeline.lake.table(table))
    columns = [
        dg.TableColumn(
            field.name,
            field.dataType.simpleString(),
            constraints=dg.TableColumnConstraints(
                nullable=field.name not in key,
                unique=list(key) == [field.name],
                other=["key"] if field.name in key else [],
            ),
        )
        for field in frame.schema
    ]
    source = source_key(blueprint.database, table)
    lineage = {column.name: [dg.TableColumnDep(source, column.name)] for column in columns}
    return {
        "dagster/row_count": frame.count(),  # answered from the table's log
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
    }


_OF_THE_TABLE = ("dagster/row_count", "dagster/column_schema", "dagster/column_lineage")


def known_table_metadata(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Mapping[str, Any]:
    """What the last materialisation said of the table as a whole; empty before the first."""
    event = instance.get_latest_materialization_event(asset)
    last = event.asset_materialization if event is not None else None
    return {name: value for name, value in last.metadata.items() if name in _OF_THE_TABLE} if last is not None else {}


def source_keys_of(pipeline: Pipeline, names: Sequence[QualifiedName]) -> Mapping[QualifiedName, Sequence[str]]:
    """The columns that identify a row, as PostgreSQL's catalogue says now; only shown, never relied on."""
    from spark_jobs.postgres.catalogue import facts_by_name
    from spark_jobs.postgres.connection import connected

    with connected(pipeline.source.dsn) as connection:
        return {facts.name: facts.key for facts in facts_by_name(connection, tuple(names))}


def window_metadata(markers: Sequence[WindowMarker], window: Window, table: QualifiedName) -> Mapping[str, int]:
    """The changes of one table in one partition, as the change log counted them; numbers, so that the UI plots them."""
    counts = [
        relation.changes
        for marker in markers
        if window.lo <= marker.window.lo and marker.window.hi <= window.hi
        for relation in marker.relations
        if QualifiedName(relation.nspname, relation.relname) == table
    ]
    changes = sum(counts, start=NO_CHANGES)
    return {**asdict(changes), "dagster/partition_row_count": changes.rows}
