"""A materialisation's metadata of a Delta table: its columns, rows, lineage, what the source says about these, and the
numbers of each window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import markers_in
from spark_jobs.change_log.change_counts import NO_CHANGES
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline, Table
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.options.table_mode import has_one_row_per_key, keeps_past
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.postgres.described_tables import DescribedColumn, ForeignKey
    from spark_jobs.postgres.described_tables import DescribedTable as InSource
    from spark_jobs.spark.provider import SparkProvider
    from spark_jobs.writers.with_arrow.described_table import DescribedTable


# the Delta version at which the numbers below were read, or an earlier one
_VERSION = "table_version"
_COMMENT, _FOREIGN_KEYS = "comment", "foreign_keys"
_OF_THE_TABLE = (
    "dagster/row_count",
    "dagster/column_schema",
    "dagster/column_lineage",
    _COMMENT,
    _FOREIGN_KEYS,
    _VERSION,
)
# tags of columns
_SOURCE_TYPE, _MASKED = "postgres/type", "postgres/masked"


@dataclass(frozen=True)
class SourceTable:
    """What is shown of a table and is known to the source only: the ``key`` that identifies a row, and what the
    catalogue says about the ``table``."""

    key: Sequence[str]
    table: InSource


def table_metadata(
    spark: SparkProvider,
    blueprint: Blueprint,
    table: QualifiedName,
    in_source: SourceTable | None,
    version: int | None,
) -> Mapping[str, Any]:
    """Columns, row count and column lineage, read from the Delta table; ``version`` is the one known before the read.

    If ``in_source`` is None, columns are left out. Spark is asked only for what cannot be read without.
    """
    from spark_jobs.writers.with_arrow.described_table import described_table

    path = blueprint.pipeline.lake.table(table)
    described = described_table(path) or _described_by_spark(spark(), path)
    source, own = (
        blueprint.specs.sources[blueprint.pipeline.relation(table)].key,
        _own_columns(blueprint.pipeline, table),
    )
    lineage = {name: [dg.TableColumnDep(source, name)] for name, _ in described.columns if name not in own}
    return {
        "dagster/row_count": described.rows,
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
        **({} if in_source is None else _shown_of(blueprint.pipeline.table(table), in_source, described)),
        **({} if version is None else {_VERSION: version}),
    }


def _described_by_spark(spark: SparkSession, path: str) -> DescribedTable:
    from spark_jobs.writers.with_arrow.described_table import DescribedTable

    frame = spark.read.format("delta").load(path)
    return DescribedTable(tuple(frame.dtypes), frame.count())  # the count is answered from the table's log


def _own_columns(pipeline: Pipeline, table: QualifiedName) -> frozenset[str]:
    """The columns that the source does not have."""
    from spark_jobs.schema.mode_columns import own_columns

    return frozenset(column.name for column in own_columns(pipeline.table(table).form))


def _shown_of(followed: Table, in_source: SourceTable, described: DescribedTable) -> Mapping[str, Any]:
    comment, keys = in_source.table.comment, in_source.table.foreign_keys
    return {
        "dagster/column_schema": _columns(followed, described, in_source),
        **({_COMMENT: comment} if comment else {}),
        **({_FOREIGN_KEYS: _foreign_keys(keys)} if keys else {}),
    }


def _columns(followed: Table, described: DescribedTable, in_source: SourceTable) -> dg.TableSchema:
    known = {column.name: column for column in in_source.table.columns}
    return dg.TableSchema(
        [_column(followed, name, kind, known.get(name), in_source) for name, kind in described.columns]
    )


def _column(
    followed: Table, name: str, kind: str, column: DescribedColumn | None, in_source: SourceTable
) -> dg.TableColumn:
    """The constraints are those that hold in the lake: rows that the source no longer has keep other values."""
    key, mode = in_source.key, followed.mode
    tags = {} if column is None else {_SOURCE_TYPE: column.type}
    references = (each for each in in_source.table.foreign_keys if name in each.columns)
    return dg.TableColumn(
        name,
        kind,
        description=column.comment or None if column is not None else None,
        constraints=dg.TableColumnConstraints(
            nullable=name not in key and not (column is not None and column.not_null and not keeps_past(mode)),
            unique=(list(key) == [name] and has_one_row_per_key(mode))
            or (column is not None and column.unique and not keeps_past(mode)),
            other=[*(["key"] if name in key else []), *(f"references {_referenced(each)}" for each in references)],
        ),
        tags=tags | ({_MASKED: "true"} if name in followed.mask else {}),
    )


def _referenced(key: ForeignKey) -> str:
    return f"{key.table} ({', '.join(key.referenced)})"


def _foreign_keys(keys: Sequence[ForeignKey]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [dg.TableRecord({"columns": ", ".join(key.columns), "references": _referenced(key)}) for key in keys]
    )


def known_table_metadata(instance: dg.DagsterInstance, asset: dg.AssetKey, version: int | None) -> Mapping[str, Any]:
    """The last materialisation's metadata of the table as a whole; empty if the table has changed since."""
    event = instance.get_latest_materialization_event(asset)
    last = event.asset_materialization if event is not None else None
    if last is None or version is None or _VERSION not in last.metadata or last.metadata[_VERSION].value != version:
        return {}
    return {name: value for name, value in last.metadata.items() if name in _OF_THE_TABLE}


def source_tables(
    pipeline: Pipeline, names: Sequence[QualifiedName], warn: Callable[[str], object]
) -> Mapping[QualifiedName, SourceTable]:
    """The tables' keys and comments, from PostgreSQL's catalogue; empty if it cannot be queried.

    They are only displayed. They are queried after the commit, when an unreachable source must not fail the run.
    """
    from spark_jobs.postgres.catalogue import relation_facts
    from spark_jobs.postgres.connection import connected
    from spark_jobs.postgres.described_tables import described_tables

    try:
        with connected(pipeline.source.dsn) as connection:
            relations = pipeline.relations(names)
            facts = relation_facts(connection, names=relations, keys=pipeline.declared_keys)
            described = described_tables(connection, relations)
            tables = {of.name: SourceTable(of.key, described[of.name]) for of in facts if of.name in described}
            return pipeline.by_name(names, tables)
    except CdcError as error:
        warn(f"the tables' keys and comments are not shown: {error}")
        return {}


def window_metadata(markers: Sequence[WindowMarker], window: Window, table: QualifiedName) -> Mapping[str, int]:
    """A source table's changes in the windows that end in a partition, as the change log counted them; the UI plots
    them."""
    landed = (relation for marker in markers_in(window, markers) for relation in marker.relations)
    changes = sum((relation.changes for relation in landed if relation.name == table), start=NO_CHANGES)
    return {**asdict(changes), "dagster/partition_row_count": changes.rows}
