"""A materialisation's metadata of a Delta table: its columns, rows, lineage, and the numbers of each window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import markers_in
from spark_jobs.change_counts import NO_CHANGES
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.postgres.comments import Comments
    from spark_jobs.spark.provider import SparkProvider
    from spark_jobs.writers.described_table import DescribedTable


# the Delta version at which the numbers below were read, or an earlier one
_VERSION = "table_version"
_COMMENT = "comment"
_OF_THE_TABLE = ("dagster/row_count", "dagster/column_schema", "dagster/column_lineage", _COMMENT, _VERSION)


@dataclass(frozen=True)
class SourceTable:
    """What is shown of a table and is known to the source only: the ``key`` that identifies a row, and comments."""

    key: Sequence[str]
    comments: Comments


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
    from spark_jobs.writers.described_table import described_table

    path = blueprint.pipeline.lake.table(table)
    described = described_table(path) or _described_by_spark(spark(), path)
    source = blueprint.specs.sources[table].key
    lineage = {name: [dg.TableColumnDep(source, name)] for name, _ in described.columns}
    return {
        "dagster/row_count": described.rows,
        "dagster/column_lineage": dg.TableColumnLineage(lineage),
        **({} if in_source is None else _shown_of(in_source, described)),
        **({} if version is None else {_VERSION: version}),
    }


def _described_by_spark(spark: SparkSession, path: str) -> DescribedTable:
    from spark_jobs.writers.described_table import DescribedTable

    frame = spark.read.format("delta").load(path)
    return DescribedTable(tuple(frame.dtypes), frame.count())  # the count is answered from the table's log


def _shown_of(in_source: SourceTable, described: DescribedTable) -> Mapping[str, Any]:
    comment = in_source.comments.table
    return {"dagster/column_schema": _columns(described, in_source), **({_COMMENT: comment} if comment else {})}


def _columns(described: DescribedTable, in_source: SourceTable) -> dg.TableSchema:
    key, comments = in_source.key, in_source.comments.columns
    return dg.TableSchema(
        [
            dg.TableColumn(
                name,
                kind,
                description=comments.get(name),
                constraints=dg.TableColumnConstraints(
                    nullable=name not in key,
                    unique=list(key) == [name],
                    other=["key"] if name in key else [],
                ),
            )
            for name, kind in described.columns
        ]
    )


def known_table_metadata(instance: dg.DagsterInstance, asset: dg.AssetKey, version: int | None) -> Mapping[str, Any]:
    """The last materialisation's metadata of the table as a whole; empty if the table has changed since."""
    event = instance.get_latest_materialization_event(asset)
    last = event.asset_materialization if event is not None else None
    if last is None or version is None or _VERSION not in last.metadata or last.metadata[_VERSION].value != version:
        return {}
    return {name: value for name, value in last.metadata.items() if name in _OF_THE_TABLE}


def table_version(pipeline: Pipeline, table: QualifiedName, identity: SlotIdentity) -> int | None:
    """The Delta table's present version, without Spark. Raises LakeError."""
    from spark_jobs.lake.table_state import table_state

    state = table_state(pipeline.lake, table, *identity.stream)
    return None if state is None else state.version


def source_tables(
    pipeline: Pipeline, names: Sequence[QualifiedName], warn: Callable[[str], object]
) -> Mapping[QualifiedName, SourceTable]:
    """The tables' keys and comments, from PostgreSQL's catalogue; empty if it cannot be queried.

    They are only displayed. They are queried after the commit, when an unreachable source must not fail the run.
    """
    from spark_jobs.postgres.catalogue import relation_facts
    from spark_jobs.postgres.comments import Comments, comments_on
    from spark_jobs.postgres.connection import connected

    try:
        with connected(pipeline.source.dsn) as connection:
            found = relation_facts(connection, names=tuple(names), keys=pipeline.declared_keys)
            comments = comments_on(connection, names)
            return {facts.name: SourceTable(facts.key, comments.get(facts.name, Comments())) for facts in found}
    except CdcError as error:
        warn(f"the tables' keys and comments are not shown: {error}")
        return {}


def window_metadata(markers: Sequence[WindowMarker], window: Window, table: QualifiedName) -> Mapping[str, int]:
    """One table's changes in the windows that end in a partition, as the change log counted them; the UI plots them."""
    counts = [
        relation.changes
        for marker in markers_in(window, markers)
        for relation in marker.relations
        if QualifiedName(relation.nspname, relation.relname) == table
    ]
    changes = sum(counts, start=NO_CHANGES)
    return {**asdict(changes), "dagster/partition_row_count": changes.rows}
