"""A sync costs what changed: idle tables cost no statement, no reading of their logs, and hardly a request."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyarrow import fs

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.maintain.maintain import maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay import change_mode
from spark_jobs.sync import SyncReport, sync
from spark_jobs.tables import ledger
from tests.fixtures.object_store import BUCKET, ObjectStore
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database, fresh_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@dataclass(frozen=True)
class _Followed:
    """``count`` tables, of which the first is changed."""

    database: Database
    pipeline: Pipeline
    spark: SparkSession

    @classmethod
    def start(cls, database: Database, lake: Path, spark: SparkSession, count: int) -> _Followed:
        names = [f"t{number}" for number in range(count)]
        for name in names:
            database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES (1, 0)")
        pipeline = pipeline_of(database, lake, *(f"public.{name}" for name in names))
        followed = cls(database, pipeline, spark)
        followed.sync()
        return followed

    def sync(self) -> SyncReport:
        report = sync(self.pipeline, lambda: self.spark)
        for error in report.errors:
            raise error
        return report

    def change(self) -> None:
        self.database.execute("UPDATE t0 SET n = n + 1")

    def assert_equal(self) -> None:
        for compared in compare(self.spark, self.pipeline, tuple(table.name for table in self.pipeline.tables or ())):
            assert compared.equal, compared

    def shown(self, table: str) -> tuple[int, int]:
        """The version of the table in the latest cut, and its newest one."""
        name, lake = QualifiedName("public", table), self.pipeline.lake
        cut, log = latest_cut(lake), TransactionLog.open(lake.table(name))
        assert cut is not None
        assert log is not None
        known = cut.table(name)
        assert known is not None
        return known.version, log.version


def _on(store: ObjectStore, followed: _Followed) -> _Followed:
    """The same, with its lake moved to the object store; there it is followed without Spark."""
    moved = f"{BUCKET}/{followed.database.name}"
    fs.copy_files(followed.pipeline.lake.path, moved, destination_filesystem=store.filesystem())
    return replace(followed, pipeline=replace(followed.pipeline, lake=Lake(f"s3a://{moved}")))


@dataclass(frozen=True)
class _Cost:
    requests: Counter[str]
    statements: int


def _cost(store: ObjectStore, followed: _Followed, statements: list[str]) -> _Cost:
    store.requests.clear()
    statements.clear()
    followed.sync()
    return _Cost(Counter(request.split()[0] for request in store.requests), len(statements))


def _idle_cost(store: ObjectStore, followed: _Followed, statements: list[str]) -> _Cost:
    """The cost of a sync that lands nothing: the server may have written WAL of its own before the first."""
    costs = (_cost(store, followed, statements) for _ in range(5))
    return next(cost for cost in costs if not cost.requests["PUT"])


def _changed_cost(store: ObjectStore, followed: _Followed, statements: list[str]) -> _Cost:
    """The cost of a sync with one change. Every so many commits a log is compacted in passing; how many there were
    before depends on the WAL that the server has written of its own, so of two in a row the cheaper one counts."""
    costs = []
    for _ in range(2):
        followed.change()
        costs.append(_cost(store, followed, statements))
    return min(costs, key=lambda cost: cost.requests.total())


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that this process sends with psycopg; they are sent all the same."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(cursor: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        sent.append(str(query))
        return execute(cursor, query, *arguments, **named)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    return sent


def test_a_sync_costs_what_changed(
    server: PostgresServer, tmp_path: Path, spark: SparkSession, object_store: ObjectStore, statements: list[str]
) -> None:
    costs: list[tuple[_Cost, _Cost]] = []
    for count in (2, 12):
        with fresh_database(server) as database:
            followed = _on(object_store, _Followed.start(database, tmp_path / str(count), spark, count))
            for _ in range(2):  # from here on this process has seen each log
                followed.change()
                followed.sync()
            idle = _idle_cost(object_store, followed, statements)
            costs.append((idle, _changed_cost(object_store, followed, statements)))
    (few_idle, few_changed), (many_idle, many_changed) = costs
    assert few_idle.statements == many_idle.statements
    assert few_changed.statements == many_changed.statements
    for few, many in ((few_idle, many_idle), (few_changed, many_changed)):
        # one more: the identifier of a commit, of the idle table whose turn it is to be looked at for the first time
        assert abs(many.requests.total() - few.requests.total()) <= 1, (few, many)
    sys.stdout.write(f"idle: {few_idle}\none changed table: {few_changed}\n")
    assert few_idle.requests.total() <= 16, few_idle
    assert few_changed.requests.total() <= 58, few_changed


def test_the_requests_of_a_sync_do_not_grow_with_the_log(
    database: Database, tmp_path: Path, spark: SparkSession, object_store: ObjectStore, statements: list[str]
) -> None:
    followed = _on(object_store, _Followed.start(database, tmp_path / "lake", spark, 1))
    taken = []
    for _ in range(30):
        followed.change()
        taken.append(_cost(object_store, followed, statements).requests.total())
    sys.stdout.write(f"one changed table, in one sync after the other: {taken}\n")
    # after five commits, each of the three logs gets a checkpoint, and no two of them in the same sync
    assert max(taken[1:]) <= 80
    assert sum(taken[20:30]) == sum(taken[10:20])


@pytest.mark.parametrize(("old", "syncs"), [(timedelta(hours=1), 3), (timedelta(0), 1)])
def test_a_commit_of_others_to_an_idle_table_is_seen_in_its_turn_or_if_the_cut_is_old(
    database: Database,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    old: timedelta,
    syncs: int,
) -> None:
    monkeypatch.setattr(ledger, "_OLD", old)
    followed = _Followed.start(database, tmp_path / "lake", spark, 3)
    for table in ("t1", "t2"):
        path = followed.pipeline.lake.table(QualifiedName("public", table))
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('by' = 'others')")
        assert followed.shown(table) == (0, 1)
    for _ in range(syncs):
        followed.change()
        followed.sync()
    assert followed.shown("t1") == followed.shown("t2") == (1, 1)
    followed.assert_equal()


def test_maintenance_shows_its_commits_to_idle_tables(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    followed = _Followed.start(database, tmp_path / "lake", spark, 2)
    report = maintain(followed.pipeline, lambda: spark)
    assert not report.errors
    for table in ("t0", "t1"):
        in_cut, newest = followed.shown(table)
        assert in_cut == newest > 0, "its properties were set"


def test_an_idle_table_that_was_deleted_is_read_again(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    followed = _Followed.start(database, tmp_path / "lake", spark, 2)
    shutil.rmtree(followed.pipeline.lake.table(QualifiedName("public", "t1")))
    report = followed.sync()
    assert [taken.name.relname for taken in report.snapshots] == ["t1"]
    followed.assert_equal()


def test_a_mode_that_was_changed_without_a_cut_is_shown_by_the_next_sync(
    database: Database, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = _Followed.start(database, tmp_path / "lake", spark, 2)
    first, second = followed.pipeline.tables or ()
    pipeline = replace(followed.pipeline, tables=(first, replace(second, mode="soft_delete")))
    followed = replace(followed, pipeline=pipeline)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as until_then:
        until_then.setattr(change_mode, "show_in_latest_cut", killed)
        with pytest.raises(KeyboardInterrupt):
            followed.sync()
    in_cut, newest = followed.shown("t1")
    assert in_cut < newest
    followed.change()
    assert followed.sync().modes == (), "it is in that mode already"
    assert followed.shown("t1") == (newest, newest)
