"""A ``"char"`` above 127. PostgreSQL 14 prints it as that byte alone, later ones as its digits, which the lake has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("source", [{}, {"binary": True}, {"plugin": "test_decoding"}], ids=["text", "binary", "lines"])
def test_it_is_the_same_in_snapshot_and_changes(
    every_database: Database, tmp_path: Path, source: dict[str, Any]
) -> None:
    database = every_database
    database.execute(
        'CREATE DOMAIN letter AS "char"',
        'CREATE TABLE c (k "char" PRIMARY KEY, v letter)',
        """INSERT INTO c VALUES ((-1)::"char", (-2)::"char"), ((-3)::"char", 'a'), ('b', '')""",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.c", **source)
    synced_without_spark(pipeline)
    database.execute(
        """UPDATE c SET v = (-128)::"char" WHERE k = (-1)::"char" """,
        """UPDATE c SET k = (-23)::"char" WHERE k = 'b'""",
        """DELETE FROM c WHERE k = (-3)::"char" """,
    )
    synced_without_spark(pipeline)
    rows = rows_of_table(DeltaTable(pipeline.lake.table(QualifiedName("public", "c")))).to_pylist()
    assert sorted(rows, key=str) == [{"k": r"\351", "v": ""}, {"k": r"\377", "v": r"\200"}]
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"]


def test_it_is_the_default_of_a_column_that_is_added(every_database: Database, tmp_path: Path) -> None:
    """In rows that are older, and in those that are sent before the column is."""
    database = every_database
    database.execute("CREATE TABLE c (id int PRIMARY KEY)", "INSERT INTO c VALUES (1)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.c")
    synced_without_spark(pipeline)
    database.execute(
        "INSERT INTO c VALUES (2)",
        """ALTER TABLE c ADD v "char" DEFAULT (-1)::"char" """,
        """INSERT INTO c VALUES (3, (-2)::"char")""",
    )
    assert synced_without_spark(pipeline).snapshots == ()
    rows = rows_of_table(DeltaTable(pipeline.lake.table(QualifiedName("public", "c")))).to_pylist()
    assert [row["v"] for row in sorted(rows, key=str)] == [r"\377", r"\377", r"\376"]
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"]


def test_in_an_array_it_stops_its_table_and_no_other(database_14: Database, tmp_path: Path) -> None:
    database = database_14
    database.execute('CREATE TABLE c (id int PRIMARY KEY, a "char"[])', "CREATE TABLE d (id int PRIMARY KEY)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.c", "public.d")
    synced_without_spark(pipeline)
    database.execute('INSERT INTO c VALUES (1, ARRAY[(-1)::"char"])', "INSERT INTO d VALUES (1)")
    (error,) = sync(pipeline, no_spark).errors
    assert 'prints a "char" above 127' in error.what
    database.execute("UPDATE c SET a = '{x}'")
    synced_without_spark(pipeline)
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal", "equal"]
