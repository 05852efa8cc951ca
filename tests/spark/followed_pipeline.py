"""A pipeline on a live server, followed step by step, and the oracle: source and lake compared row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from psycopg import sql
from pydantic import SecretStr

from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake, Pipeline, Source, SparkOptions, Table
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.connection import conninfo
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.schema.mode_columns import ended_column, own_columns
from spark_jobs.snapshot.exporter import exported_snapshot
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, snapshot_tables
from spark_jobs.snapshot.snapshot_work import SnapshotWork
from spark_jobs.sync import SyncReport, sync
from tests.fixtures.pipelines import prepare_slot
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Followed:
    """One database, its slot and its lake."""

    spark: SparkSession
    database: Database
    pipeline: Pipeline
    names: tuple[QualifiedName, ...]
    on_driver_bytes: int = WriteLimits.on_driver_bytes

    @classmethod
    def start(
        cls, spark: SparkSession, database: Database, lake: Path, *tables: str, options: SparkOptions | None = None
    ) -> Followed:
        """The tables must be there. Makes publication, slot and log. ``options``: what kind of Spark ``spark`` is."""
        names = tuple(QualifiedName("public", table) for table in tables)
        source = Source(SecretStr(database.dsn), database.name, database.name)
        pipeline = Pipeline(database.name, source, Lake(str(lake)), tables=tuple(map(Table, names)))
        pipeline = pipeline if options is None else replace(pipeline, spark=options)
        prepare_slot(pipeline)
        return cls(spark, database, pipeline, names)

    @property
    def run(self) -> Run:
        """Without locks."""
        limits = replace(self.pipeline.writes, on_driver_bytes=self.on_driver_bytes)
        return Run(replace(self.pipeline, writes=limits), lambda: self.spark)

    @property
    def markers(self) -> tuple[WindowMarker, ...]:
        return ChangeLog(self.pipeline.lake.change_log).markers()

    def snapshot(self, *names: QualifiedName) -> tuple[TableSnapshot, ...]:
        last = self.markers[-1]
        run = self.run.of(replace(self.pipeline, merge_engine="auto"))  # quicker than by Spark
        connect = partial(bulk_connection, conninfo(self.pipeline.source.dsn))
        work = SnapshotWork(run, names or self.names, last, connect)
        with exported_snapshot(self.pipeline.source.dsn) as (exported, connection):
            return snapshot_tables(work, exported, connection)

    def sync(self) -> tuple[TableApplied, ...]:
        """Capture what there is and apply it."""
        capture(self.pipeline)
        return self.apply()

    def apply(self) -> tuple[TableApplied, ...]:
        markers = self.markers
        identity = markers[0].identity
        states = [state for name in self.names if (state := table_state(self.pipeline.lake, name, identity))]
        return apply_tables([TableRange(self.run, state, markers) for state in states])

    def state(self, name: QualifiedName) -> TableState:
        state = table_state(self.pipeline.lake, name, self.markers[0].identity)
        assert state is not None
        return state

    def assert_equal(self) -> None:
        """Every table: the same rows in source and lake, compared as values."""
        for name in self.names:
            lake, columns = self.lake_rows(name)
            assert lake == self.source_rows(name, columns), f"{name} differs"

    def lake_rows(self, name: QualifiedName) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows that the source has, in its columns."""
        table, form = lake_rows(self.spark, self.pipeline.lake.table(name)), self.pipeline.table(name).form
        if (ended := ended_column(form.mode)) is not None:
            table = table.filter(pc.is_null(table.column(ended.name)))
        table = table.drop_columns([column.name for column in own_columns(form)])
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return _sorted(list(rows)), list(table.column_names)

    def source_rows(self, name: QualifiedName, columns: list[str]) -> list[tuple[Any, ...]]:
        """As the lake has them: types beyond the flat ones as PostgreSQL's text."""
        shown = self.pipeline.relation(name)
        relation = sql.Identifier(shown.nspname, shown.relname)
        flat = "bool|int2|int4|int8|float4|float8|date|timestamp|timestamptz|bytea|text|numeric"
        with self.database.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            types: dict[Any, Any] = dict(
                connection.execute(
                    "SELECT attname::text, atttypid::regtype::text FROM pg_attribute WHERE attrelid = %s::regclass"
                    " AND attnum > 0 AND NOT attisdropped AND (SELECT typname FROM pg_type WHERE oid = atttypid)::text"
                    " = ANY (string_to_array(%s, '|'))",
                    [relation.as_string(), flat],
                ).fetchall()  # type: ignore[arg-type]
            )
            chosen = sql.SQL(", ").join(
                sql.Identifier(c) if c in types else sql.SQL("{}::text").format(sql.Identifier(c)) for c in columns
            )
            query = sql.SQL("SELECT {} FROM {}").format(chosen, relation)
            return _sorted(connection.execute(query).fetchall())


def synced(followed: Followed) -> SyncReport:
    """One ``sync``, which finds no errors."""
    report = sync(followed.pipeline, lambda: followed.spark)
    assert report.errors == ()
    return report


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)
