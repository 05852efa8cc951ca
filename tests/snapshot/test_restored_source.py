"""New snapshots after the source was restored from a backup: the numbers of its transactions and columns go back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.servers import Database, started
from tests.fixtures.standbys import base_backup, copy_started
from tests.snapshot.large_table import BIG, LargeTable, created

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ITEM = QualifiedName("public", "item")


def at(pipeline: Pipeline, database: Database) -> Pipeline:
    return replace(pipeline, source=replace(pipeline.source, dsn=SecretStr(database.dsn)))


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[LargeTable]:
    """The backup, running, with its own last column of ``item``. The lake shows what was written since."""
    with ExitStack() as servers, started(15) as primary:
        with psycopg.connect(primary.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        database = Database(primary, "shop")
        created(database).execute(
            "CREATE TABLE item (id int PRIMARY KEY, v text)", "INSERT INTO item VALUES (1, 'one'), (2, 'two')"
        )
        large = LargeTable.at(database, tmp_path / "lake")
        large.pipeline = replace(large.pipeline, tables=(Table(BIG), Table(ITEM, mode="history")))
        synced_without_spark(large.pipeline)
        folder = servers.enter_context(base_backup(primary))
        database.execute(
            "SELECT pg_switch_wal()",
            "ALTER TABLE item ADD lost text",
            "UPDATE item SET lost = 'lost'",
            *(f"UPDATE big SET n = -n WHERE id = {number}" for number in range(100)),
        )
        synced_without_spark(large.pipeline)
        copy = servers.enter_context(copy_started(primary, folder))
        large.database = Database(copy, "shop")
        large.pipeline = at(large.pipeline, large.database)
        large.database.execute("ALTER TABLE item ADD other text", "UPDATE item SET other = 'other'")
        yield large


def test_chunks_are_read_once_and_past_rows_keep_their_columns(
    restored: LargeTable, caplog: pytest.LogCaptureFixture
) -> None:
    """The change log has transactions of the earlier chapter that are in this server's future. And what was landed of a
    column is not taken for the value of another one that has its number."""
    assert recover(restored.pipeline, no_spark).errors == ()
    synced_without_spark(restored.pipeline)
    assert "is read from the start" not in caplog.text
    restored.assert_equal()
    rows = rows_of_table(DeltaTable(restored.pipeline.lake.table(ITEM))).to_pylist()
    assert {row["other"] for row in rows if row["_valid_to_lsn"] is None} == {"other"}
    assert {row["other"] for row in rows if row["_valid_to_lsn"] is not None} == {None}
