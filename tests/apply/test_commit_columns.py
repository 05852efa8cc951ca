"""``metadata_columns`` of tables that this process writes, without a JVM: each row names the commit that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, LargeTable, created
from tests.spark.audit import Row
from tests.spark.audited_item import CHANGES, ITEM
from tests.spark.commit_oracle import BOTH
from tests.spark.commit_tables import NAMES, STEPS, CommitTables

pytestmark = pytest.mark.postgres


@pytest.fixture
def followed(database: Database, tmp_path: Path) -> Callable[..., Pipeline]:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, n int)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
    )

    def make(*columns: CommitColumn) -> Pipeline:
        return replace(pipeline_of(database, tmp_path / "lake"), tables=(Table(ITEM, metadata_columns=columns),))

    return make


def rows_of(pipeline: Pipeline, name: QualifiedName = ITEM) -> list[Row]:
    return list(rows_of_table(DeltaTable(pipeline.lake.table(name))).to_pylist())


def state_of(pipeline: Pipeline, name: QualifiedName = ITEM) -> TableState:
    state = table_state(pipeline.lake, name, LandedWindows.of(pipeline).identity)
    assert state is not None
    return state


def run(database: Database, transactions: Sequence[Sequence[str]]) -> None:
    for statements in transactions:
        with database.connect() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement)


def test_each_row_names_its_last_commit(database: Database, tmp_path: Path) -> None:
    """In every mode, and without a key: snapshot, kinds of changes, keys that move, values that are not sent, rows
    written with the values they had, a column with a default, and a TRUNCATE. ``verify`` finds the columns no
    difference."""
    tables = CommitTables.created(database)
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=tables.configured)
    assert not synced_without_spark(pipeline).errors
    for transactions in ([], *STEPS.values()):
        tables.run(transactions)
        synced_without_spark(pipeline)
        tables.assert_commits(pipeline, lambda name: state_of(pipeline, name), lambda name: rows_of(pipeline, name))
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}


@pytest.mark.parametrize("mode", ["soft_delete", "history"])
def test_a_new_snapshot_beside_the_past(database: Database, tmp_path: Path, mode: Mode) -> None:
    """A row that was deleted before, and a version that goes on, name their commits; all others the snapshot."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY, n int)", "INSERT INTO item VALUES (1, 1), (2, 2), (3, 3)")
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=(Table(ITEM, mode, metadata_columns=BOTH),))
    (first,) = synced_without_spark(pipeline).snapshots
    run(database, [["DELETE FROM item WHERE id = 1"]])
    synced_without_spark(pipeline)
    (deleted,) = {row["_commit_lsn"] for row in rows_of(pipeline) if row["id"] == 1}
    database.execute("UPDATE item SET n = 7 WHERE id = 2", "ALTER TABLE item ALTER n TYPE bigint")
    (again,) = synced_without_spark(pipeline).snapshots
    found = sorted((row["id"], row["n"], row["_commit_lsn"]) for row in rows_of(pipeline))
    since, now = int(first.lsn), int(again.lsn)
    if mode == "soft_delete":
        assert found == [(1, 1, deleted), (2, 7, now), (3, 3, now)]
    else:
        assert found == [(1, 1, deleted), (2, 2, now), (2, 7, now), (3, 3, since)]


def test_one_of_the_columns(database: Database, followed: Callable[..., Pipeline]) -> None:
    pipeline = followed("_commit_time")
    synced_without_spark(pipeline)
    run(database, CHANGES[:1])
    synced_without_spark(pipeline)
    held = rows_of(pipeline)
    assert set(held[0]) == {*NAMES, "_commit_time"}
    newest = max(held, key=lambda row: row["_commit_time"])
    assert newest["id"] == 100
    assert all(row["_commit_time"] for row in held)


def test_a_column_of_that_name_stops_the_table(database: Database, followed: Callable[..., Pipeline]) -> None:
    database.execute('ALTER TABLE item ADD "_Commit_LSN" int')
    with pytest.raises(Exception, match=r"public\.item has columns that metadata_columns adds: _Commit_LSN"):
        synced_without_spark(followed(*BOTH))


def test_a_large_table_names_its_snapshot(database: Database, tmp_path: Path) -> None:
    """Its chunks were read at other LSNs than that of the snapshot, and rows of it changed meanwhile."""
    table = Table(BIG, metadata_columns=BOTH)
    large = LargeTable.at(created(database), tmp_path / "lake", table=table).prepared()
    large.read_on()
    database.execute("UPDATE big SET n = -n WHERE id % 7 = 0", "DELETE FROM big WHERE id % 11 = 0")
    large.read_on()
    database.execute("UPDATE big SET n = n - 1 WHERE id % 5 = 0", "INSERT INTO big VALUES (10001, 1, 'x', 'y')")
    taken = large.read_on(to_the_end=True)
    large.assert_equal()
    held = rows_of(large.pipeline, BIG)
    assert {row["_commit_lsn"] for row in held} == {int(taken.lsn)}
    assert len({row["_commit_time"] for row in held}) == 1
