"""``metadata_columns`` of a mirror that this process writes, without a JVM: each row names the commit that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.table_mode import CommitColumn
from spark_jobs.verify.verify import verify
from spark_jobs.writers.held_rows import held_rows
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, LargeTable, created
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.audited_item import CHANGES, ITEM, first_rows
from tests.spark.commit_oracle import BOTH, assert_commits, last_writers

pytestmark = pytest.mark.postgres

NAMES = ("id", "v", "doc", "n")
SAME_VALUES = ("UPDATE item SET n = n WHERE id IN (14, 15)",)


@pytest.fixture
def followed(database: Database, tmp_path: Path) -> Callable[..., Pipeline]:
    database.execute(
        *AUDIT,
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, n int)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
        *audited("item"),
    )

    def make(*columns: CommitColumn) -> Pipeline:
        return replace(pipeline_of(database, tmp_path / "lake"), tables=(Table(ITEM, metadata_columns=columns),))

    return make


def rows_of(pipeline: Pipeline, name: QualifiedName = ITEM) -> list[Row]:
    return list(held_rows(DeltaTable(pipeline.lake.table(name))).to_pylist())


def state_of(pipeline: Pipeline, name: QualifiedName = ITEM) -> TableState:
    state = table_state(pipeline.lake, name, *LandedWindows.of(pipeline).identity.stream)
    assert state is not None
    return state


def run(database: Database, transactions: Sequence[Sequence[str]]) -> None:
    for statements in transactions:
        with database.connect() as connection, connection.transaction():
            for statement in statements:
                connection.execute(statement)


def test_each_row_names_its_last_commit(database: Database, followed: Callable[..., Pipeline]) -> None:
    """Snapshot, kinds of changes, keys that move, values that are not sent, and rows written with the values they had.
    All are written without Spark, and ``verify`` finds the columns no difference."""
    pipeline = followed(*BOTH)
    synced_without_spark(pipeline)
    changes: list[Any] = [*CHANGES, SAME_VALUES, ("INSERT INTO item VALUES (400, 'alone', 'x', 1)",)]
    for part in ([], changes[:3], changes[3:-1], changes[-1:]):
        run(database, part)
        synced_without_spark(pipeline)
        held = rows_of(pipeline)
        assert set(held[0]) == {*NAMES, *BOTH}
        expected = last_writers("mirror", NAMES, first_rows(), audit_of(database, "item"))
        assert_commits(pipeline, state_of(pipeline), held, NAMES, expected)
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"]


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
