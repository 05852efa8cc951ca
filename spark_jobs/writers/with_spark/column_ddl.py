"""DDL that makes a Delta table follow its source table: columns are dropped, renamed and added in place.

With column mapping by name (https://docs.delta.io/latest/delta-column-mapping.html), which a table gets with its first
such change, data files are rewritten only where existing rows get a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.decode.values import missing_value
from spark_jobs.delta.table import delta_identifier
from spark_jobs.options.table_layout import TableLayout
from spark_jobs.schema.column_changes import ColumnChanges
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.mode_columns import live_rows, own_columns
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.table_commit import Provenance, committed_version, committing_session
from spark_jobs.writers.table_features import MAPPED_NAMES, features_of_columns
from spark_jobs.writers.with_spark.arranged_table import rewriting
from spark_jobs.writers.with_spark.delta_table import add_features, replace_table, table_columns, with_metadata
from spark_jobs.writers.with_spark.variants import stored_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkDdl:
    """DDL on the table at ``path``, which has this ``layout``. See ``follow_columns.ColumnDdl``. Raises Spark's own
    exceptions."""

    spark: SparkSession
    path: Location
    layout: TableLayout

    def alter(self, changes: ColumnChanges) -> bool:
        """In one commit per statement. After a kill, attribute numbers show what is left to do."""
        spark, path = self.spark, self.path
        features = MAPPED_NAMES if changes.dropped or changes.renamed else features_of_columns(changes.added)
        add_features(spark, path, features)
        table = delta_identifier(path)
        with isolated_session(spark, {}) as own:
            if changes.dropped:
                names = ", ".join(quoted(column.name) for column in changes.dropped)
                own.sql(f"ALTER TABLE {table} DROP COLUMNS ({names})")
            for old, new in _renames(changes, lake_names=[column.name for column in table_columns(own, path)]):
                own.sql(f"ALTER TABLE {table} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
            if changes.added:
                # SQL cannot give a column metadata
                ddl = ", ".join(f"{quoted(column.name)} {column.lake_type.sql}" for column in changes.added)
                nothing = with_metadata(own.createDataFrame([], ddl), changes.added)
                nothing.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
        return True

    def rewrite(self, shape: TableShape, provenance: Provenance) -> int:
        spark, path = self.spark, self.path
        form = provenance.generation.form
        kept, live = [quoted(column.name) for column in own_columns(form)], live_rows(form.mode) or "false"
        with rewriting(spark, path, self.layout, shape.columns), committing_session(spark, path, provenance) as own:
            names = {column.attnum: column.name for column in table_columns(own, path)}
            new = [column for column in shape.columns if column.attnum not in names]
            rows = own.read.format("delta").load(path)
            renamed = rows.selectExpr(
                *(
                    f"{_in_type(quoted(names[c.attnum]), c)} AS {_between_sql(c)}"
                    for c in shape.columns
                    if c.attnum in names
                ),
                *kept,
            )
            # a cross join with a row that has no columns could leave no rows
            filled = renamed.crossJoin(_missing_values(own, new, shape)) if new else renamed
            named = filled.selectExpr(
                *(
                    f"{_between_sql(c) if c.attnum in names else f'CASE WHEN {live} THEN {_between_sql(c)} END'}"
                    f" AS {quoted(c.name)}"
                    for c in shape.columns
                ),
                *kept,
            )
            replace_table(with_metadata(named, shape.columns, form, replaces=rows), path, self.layout)
            return committed_version(own, path, provenance)


def _renames(changes: ColumnChanges, lake_names: Sequence[str]) -> list[tuple[str, str]]:
    """Old and new names, in an order in which each new name is free. Names may be swapped, passed on from column to
    column, or differ only in case: such columns get a temporary name first."""
    names, new_names = {name.lower() for name in lake_names}, {new.name.lower() for _, new in changes.renamed}
    crossing = {
        new.attnum for old, new in changes.renamed if new.name.lower() in names or old.name.lower() in new_names
    }
    return [
        *((old.name, _between(new)) for old, new in changes.renamed if new.attnum in crossing),
        *((_between(new) if new.attnum in crossing else old.name, new.name) for old, new in changes.renamed),
    ]


def _in_type(value: str, column: LakeColumn) -> str:
    return f"CAST({value} AS {column.lake_type.sql})" if column.lake_type.kind is LakeKind.DECIMAL else value


def _missing_values(spark: SparkSession, columns: Sequence[LakeColumn], shape: TableShape) -> DataFrame:
    """One row with the columns' missing values, cast as changes are."""
    values = [
        pa.nulls(1, column.lake_type.arrow) if column.missing is None else missing_value(column, shape).values
        for column in columns
    ]
    ddl = ", ".join(f"{_between_sql(column)} {column.lake_type.decoded_sql}" for column in columns)
    row = spark.createDataFrame(pa.table(values, names=[_between(column) for column in columns]), ddl)
    return row.selectExpr(*(f"{stored_sql(_between_sql(c), c)} AS {_between_sql(c)}" for c in columns))


def _between(column: LakeColumn) -> str:
    """A temporary name, unique by the column's attribute number."""
    return f"pg_attribute.{column.attnum}"


def _between_sql(column: LakeColumn) -> str:
    return quoted(_between(column))
