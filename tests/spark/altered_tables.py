"""Tables that are altered between two syncs, with rows changed before and after: made, altered, and what a sync did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from tests.fixtures.row_compare import compare
from tests.spark.commit_chain import faults, our_commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Altered:
    """A table ``{t}`` of five rows, and what is done to it between two syncs; ``{p}`` is the publication.

    ``columns`` stand beside ``id``, the key; ``values`` are those of row ``g``. ``made_with`` is done before the first
    sync. ``reason``: why the table is read again. ``followed``: what happens to its columns in place. Both empty: DDL
    that leaves rows and columns as they are.
    """

    columns: str
    values: str
    ddl: tuple[str, ...]
    reason: str = ""
    followed: tuple[str, ...] = ()
    made_with: tuple[str, ...] = ()
    partitioned: bool = False

    def making(self) -> Iterator[str]:
        """A partitioned table has one partition, of the keys below 10."""
        if not self.partitioned:
            yield f"CREATE TABLE {{t}} (id int PRIMARY KEY, {self.columns})"
        else:
            yield f"CREATE TABLE {{t}} (id int PRIMARY KEY, {self.columns}) PARTITION BY RANGE (id)"
            yield "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10)"
        yield from self.made_with
        yield f"INSERT INTO {{t}} SELECT g, {self.values} FROM generate_series(1, 5) g"

    def altering(self) -> Iterator[str]:
        """The DDL between changes of rows."""
        yield "DELETE FROM {t} WHERE id = 4"
        yield from self.ddl
        yield "UPDATE {t} SET id = 4 WHERE id = 1"


def partitioned(
    *ddl: str, reason: str = "", followed: tuple[str, ...] = (), made_with: tuple[str, ...] = ()
) -> Altered:
    """A partitioned table with one column beside its key."""
    return Altered("t text", "'row ' || g", ddl, reason, followed, made_with, partitioned=True)


def making(tables: Mapping[str, Altered]) -> list[str]:
    return [statement.format(t=name) for name, table in tables.items() for statement in table.making()]


def altering(tables: Mapping[str, Altered], publication: str) -> list[str]:
    return [statement.format(t=name, p=publication) for name, table in tables.items() for statement in table.altering()]


def in_public(tables: Iterable[str]) -> tuple[QualifiedName, ...]:
    return tuple(QualifiedName("public", name) for name in tables)


def synced(spark: SparkSession, pipeline: Pipeline) -> SyncReport:
    """One sync in which no table stops."""
    report = sync(pipeline, lambda: spark)
    assert not report.errors, report.errors
    return report


def read_again(report: SyncReport) -> dict[str, str]:
    """The reason of each table that got a snapshot, by relname; no table got two."""
    reasons = {table.name.relname: table.reason for table in report.snapshots}
    assert len(reasons) == len(report.snapshots), [table.name for table in report.snapshots]
    return reasons


def assert_equal(spark: SparkSession, pipeline: Pipeline, *names: QualifiedName) -> None:
    """Row by row, at rest."""
    differing = [comparison for comparison in compare(spark, pipeline, names) if not comparison.equal]
    assert not differing, differing


def versions(pipeline: Pipeline, *names: QualifiedName) -> dict[str, int]:
    """The newest Delta version of each table, by relname. The commits of ours to it are one chain, in which no window
    is written twice and none is left out."""
    markers = ChangeLog(pipeline.lake.change_log).markers()
    paths = {name.relname: pipeline.lake.table(name) for name in names}
    problems = [
        f"{relname}: {fault}" for relname, path in paths.items() for fault in faults(our_commits(path), markers)
    ]
    assert not problems, problems
    return {relname: DeltaTable(path).version() for relname, path in paths.items()}
