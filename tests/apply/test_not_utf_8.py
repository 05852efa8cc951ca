"""An SQL_ASCII database holds texts of any encoding. One that is not UTF-8 stops its table, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline, PluginName
from spark_jobs.errors import SourceError
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.described_tables import described_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database

pytestmark = pytest.mark.postgres


@pytest.fixture
def of_any_encoding(server: PostgresServer) -> Iterator[Database]:
    with fresh_database(server) as database:
        name = sql.Identifier(database.name)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {}").format(name))
            encoded = "CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"
            connection.execute(sql.SQL(encoded).format(name))
        yield database


# few changes are read by another session than many
@pytest.mark.parametrize(("plugin", "rows"), [("pgoutput", 1), ("pgoutput", 30_000), ("test_decoding", 1)])
def test_its_table_stops_alone(of_any_encoding: Database, tmp_path: Path, plugin: PluginName, rows: int) -> None:
    database, tables = of_any_encoding, ("notes", "others", "old_ones")
    for table in tables:
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, t text)", rf"INSERT INTO {table} VALUES (1, E'\xc3\xa9')"
        )
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{table}" for table in tables))
    pipeline = replace(pipeline, source=replace(pipeline.source, plugin=plugin))
    database.execute(r"UPDATE old_ones SET t = E'\xff'")
    assert_stopped(pipeline, "old_ones")
    database.execute("UPDATE old_ones SET t = 'y'")
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()

    database.execute(
        r"UPDATE notes SET t = E'\xff'",
        rf"INSERT INTO others SELECT g, E'\xc3\xbc' FROM generate_series(2, {rows + 1}) g",
    )
    assert_stopped(pipeline, "notes")
    verdicts = {each.name.relname: each.verdict for each in verify(pipeline, no_spark).tables}
    assert verdicts["others"] == "equal"
    assert verdicts["notes"] != "equal"

    database.execute("UPDATE notes SET t = 'y'", "UPDATE others SET t = 'z' WHERE id = 1")
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()


def test_a_default_stops_its_table_alone(of_any_encoding: Database, tmp_path: Path) -> None:
    database = of_any_encoding
    database.execute(*(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in ("notes", "others")))
    database.execute("INSERT INTO notes VALUES (1)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.notes", "public.others")
    synced_without_spark(pipeline)
    database.execute(r"ALTER TABLE notes ADD t text DEFAULT E'\xff'", "INSERT INTO notes VALUES (2, 'y')")
    database.execute("INSERT INTO others VALUES (1)")
    assert_stopped(pipeline, "notes")
    verdicts = {each.name.relname: each.verdict for each in verify(pipeline, no_spark).tables}
    assert verdicts["others"] == "equal"
    database.execute("UPDATE notes SET t = 'y'")
    (done,) = snapshot(Run(pipeline, no_spark), [QualifiedName("public", "notes")])
    assert done.error is None
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()


def test_a_comment_stops_nothing(of_any_encoding: Database, tmp_path: Path) -> None:
    """It ends where it is no UTF-8, be it that the server cuts a character of a long one."""
    comments = {
        "latin": (r"caf\xe9 au lait", "caf..."),
        "utf_8": (r"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "é€😀"),
        "long": (r"x" + r"\xc3\xa9" * 3_000, "x" + "é" * 1_998 + "..."),
        "surrogate": (r"a\xed\xa0\x80", "a..."),
    }
    for name, (comment, _) in comments.items():
        of_any_encoding.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY)",
            f"COMMENT ON TABLE {name} IS E'{comment}'",
            f"COMMENT ON COLUMN {name}.id IS E'{comment}'",
            f"INSERT INTO {name} VALUES (1)",
        )
    pipeline = pipeline_of(of_any_encoding, tmp_path / "lake", *(f"public.{name}" for name in comments))
    synced_without_spark(pipeline)
    of_any_encoding.execute(*(f"INSERT INTO {name} VALUES (2)" for name in comments))
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()
    names = [QualifiedName("public", name) for name in comments]
    with connected(pipeline.source.dsn) as connection:
        described = described_tables(connection, names)
    expected = {name: (said, said) for name, (_, said) in comments.items()}
    found = {name.relname: (table.comment, table.columns[0].comment) for name, table in described.items()}
    assert found == expected


def test_the_hint_for_a_label_ends_it(of_any_encoding: Database, tmp_path: Path) -> None:
    """Nothing is read meanwhile, and nothing is lost."""
    database = of_any_encoding
    database.execute("CREATE TYPE mood AS ENUM ('sad')", "CREATE TABLE notes (id int PRIMARY KEY, m mood)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.notes")
    synced_without_spark(pipeline)
    database.execute(r"ALTER TYPE mood ADD VALUE E'\xff'", "INSERT INTO notes VALUES (1)")
    with pytest.raises(SourceError) as refused:
        sync(pipeline, no_spark)
    assert "a name or an enum's label of this SQL_ASCII database is not UTF-8" in refused.value.hint
    database.execute(r"ALTER TYPE mood RENAME VALUE E'\xff' TO 'y'")
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()


def assert_stopped(pipeline: Pipeline, table: str) -> None:
    (error,) = sync(pipeline, no_spark).errors
    assert f"public.{table}" in error.what
    assert "UTF-8" in error.what
    assert "correct the row at the source" in error.hint
