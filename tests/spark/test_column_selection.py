"""``columns:`` of a table: what is left out never leaves the database, and what is chosen is followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.capture.chapter import begin_chapter
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import ColumnSelection, Pipeline, Table
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.errors import CdcError, ConfigurationError, PreconditionError, SourceError
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = pytest.mark.postgres

USERS, ITEMS = QualifiedName("public", "users"), QualifiedName("public", "items")
SCHEMA = (
    (
        'CREATE TABLE users (id int PRIMARY KEY, name text, "E mail" text, born date,'
        " upper text GENERATED ALWAYS AS (upper(name)) STORED)"
    ),
    "CREATE TABLE items (id int PRIMARY KEY, sku text)",
    "INSERT INTO users (id, name, \"E mail\") SELECT g, 'name', 'canary' FROM generate_series(1, 9) g",
    "INSERT INTO items VALUES (1, 'x')",
)
CHANGES = (
    "UPDATE users SET \"E mail\" = 'canary 2' WHERE id = 1",
    "UPDATE users SET name = 'other', \"E mail\" = 'canary 3' WHERE id = 2",
    "UPDATE users SET id = 20 WHERE id = 3",
    "DELETE FROM users WHERE id = 4",
    "INSERT INTO users (id, name, \"E mail\") VALUES (10, 'new', 'canary 4')",
)


def selecting(database: Database, lake: Path, *, include: str = "", exclude: str = "") -> Pipeline:
    """Two tables; of users these columns, separated by commas."""
    chosen = ColumnSelection(*(tuple(filter(None, names.split(","))) for names in (include, exclude)))
    pipeline = pipeline_of(database, lake, "public.users", "public.items")
    return replace(pipeline, tables=(Table(USERS, columns=chosen), Table(ITEMS)))


def synced(spark: SparkSession, pipeline: Pipeline) -> set[str]:
    """The tables that were read again."""
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    assert all(found.equal for found in compare(spark, pipeline, (USERS, ITEMS)))
    return {table.name.relname for table in report.snapshots}


def columns_of(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    return list(spark.read.format("delta").load(pipeline.lake.table(USERS)).columns)


def landed(pipeline: Pipeline) -> bytes:
    """All messages of the change log."""
    log = ChangeLog(pipeline.lake.change_log)
    relids = {counts.relid for marker in log.markers() for counts in marker.relations}
    return b"".join(filter(None, log.read(sorted(relids), 0, len(log.markers())).column("data").to_pylist()))


@pytest.mark.spark
def test_what_is_left_out_never_leaves_the_database(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA)
    pipeline = selecting(database, tmp_path / "lake", exclude="E mail")
    assert synced(spark, pipeline) == {"users", "items"}
    database.execute(*CHANGES)
    assert synced(spark, pipeline) == set()
    assert columns_of(spark, pipeline) == ["id", "name", "born"]
    assert b"name" in landed(pipeline)
    assert b"canary" not in landed(pipeline)
    (check,) = [check for check in diagnose(pipeline).checks if check.what == str(USERS)]
    assert (check.verdict, check.found) == (Verdict.OK, "key (id); columns (id, name, born)")
    # a new column comes by itself, as the others do; none of those that an ``include`` does not name
    database.execute("ALTER TABLE users ADD phone text DEFAULT 'none'", "UPDATE users SET phone = '1' WHERE id = 1")
    assert synced(spark, pipeline) == {"users"}
    assert columns_of(spark, pipeline) == ["id", "name", "born", "phone"]
    database.execute(*(change.replace("10", "11").replace("= 4", "= 5") for change in CHANGES))
    narrower = selecting(database, tmp_path / "lake", include="born,id")
    assert synced(spark, narrower) == {"users"}
    database.execute(
        "UPDATE users SET name = 'canary', born = '2001-01-01'",
        "ALTER TABLE users ADD fax text",
        "UPDATE users SET fax = 'canary', born = '2002-01-01' WHERE id = 1",
    )
    assert synced(spark, narrower) == set()
    assert columns_of(spark, narrower) == ["id", "born"]
    database.execute(
        "ALTER TABLE users RENAME born TO birthday", "UPDATE users SET birthday = '2003-01-01' WHERE id = 1"
    )
    renamed = selecting(database, tmp_path / "lake", include="birthday,id")
    assert synced(spark, renamed) == set()
    assert columns_of(spark, renamed) == ["id", "birthday"]
    assert b"canary" not in landed(pipeline)


@pytest.mark.parametrize(
    ("table", "include", "exclude", "kind", "said"),
    [
        ("users", "", "email", ConfigurationError, "columns: public.users has no column email, or it is generated:"),
        ("users", "id,upper", "", ConfigurationError, "columns: public.users has no column upper, or it is generated:"),
        ("users", "", "id", ConfigurationError, "columns: leaves out id, by which changes of public.users find"),
        ("users", "name", "", ConfigurationError, "columns: leaves out id, by which changes of public.users find"),
        (
            "users REPLICA IDENTITY FULL",
            "",
            "born",
            PreconditionError,
            "the source would refuse every UPDATE and DELETE",
        ),
    ],
)
def test_a_selection_that_does_not_fit(
    database: Database, tmp_path: Path, table: str, include: str, exclude: str, kind: type[CdcError], said: str
) -> None:
    database.execute(*SCHEMA, *([f"ALTER TABLE {table}"] if " " in table else []))
    pipeline = selecting(database, tmp_path / "lake", include=include, exclude=exclude)
    if kind is ConfigurationError:  # nothing is touched
        with pytest.raises(kind, match=r"tables: public\.users: ") as caught:
            prepare(pipeline)
        error: CdcError = caught.value
        assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    else:
        (stopped,) = prepare(pipeline).stopped
        error = stopped.error
        assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("items",)]
    assert type(error) is kind
    assert str(error).startswith("tables: public.users: ")
    assert said in str(error)
    (check,) = [check for check in diagnose(pipeline).checks if check.what == str(USERS)]
    assert (check.verdict, said.split(": ", 1)[-1][:20] in check.found) == (Verdict.FAIL, True)
    # once the others are followed, that table alone stops, and leaves the publication
    whole = replace(pipeline, tables=(Table(USERS), Table(ITEMS)))
    prepare(whole)
    (stopped,) = prepare(pipeline).stopped
    assert stopped.name == USERS
    assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("items",)]


def test_a_publication_that_is_not_ours_and_sends_more_is_not_read(database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR TABLE users, items")
    pipeline = selecting(database, tmp_path / "lake", exclude="E mail,born")
    with pytest.raises(
        PreconditionError, match=r"users: columns: the publication sends E mail, born, which must not leave"
    ):
        prepare(pipeline)
    database.execute(f"ALTER PUBLICATION {database.name} SET TABLE users (id, name), items")
    prepare(pipeline)
    database.execute("UPDATE users SET name = 'x', \"E mail\" = 'canary'")
    capture(pipeline)
    assert b"canary" not in landed(pipeline)
    database.execute(f"ALTER PUBLICATION {database.name} SET TABLE users, items", CHANGES[0])
    with pytest.raises(PreconditionError, match="nothing is read"):
        capture(pipeline)
    assert b"canary" not in landed(pipeline)
    database.execute(f"ALTER PUBLICATION {database.name} SET TABLE users (id, name), items")
    (stopped,) = prepare(selecting(database, tmp_path / "lake", include="id,name,born")).stopped
    assert "the publication does not send born" in str(stopped.error)


def test_a_new_chapter_leaves_the_column_lists_as_they_are(database: Database, tmp_path: Path) -> None:
    """What is changed before ``prepare`` looks at them again is decoded with the lists of then."""
    database.execute(*SCHEMA)
    pipeline = selecting(database, tmp_path / "lake", exclude="E mail")
    last = prepare(pipeline).ledger.last
    database.execute("SELECT pg_drop_replication_slot(current_database())")
    assert begin_chapter(pipeline, (USERS, ITEMS), after=last, what="its slot was dropped") is not None
    database.execute(*CHANGES)
    prepare(pipeline)
    capture(pipeline)
    assert b"other" in landed(pipeline)
    assert b"canary" not in landed(pipeline)


def test_a_list_without_the_key_stops_that_table_alone(database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR TABLE items")
    pipeline = pipeline_of(database, tmp_path / "lake")
    prepare(pipeline)
    database.execute(
        f"ALTER PUBLICATION {database.name} ADD TABLE users (name) WHERE (born IS NULL)",
        f"ALTER PUBLICATION {database.name} SET (publish = 'insert')",
    )
    (stopped,) = prepare(pipeline).stopped
    assert "table public.users has a key column that is not published: id" in str(stopped.error)
    assert stopped.error.hint.endswith("ALTER PUBLICATION ... ADD TABLE public.users (id, name)")
    statements = stopped.error.hint.partition(": ALTER")[2]
    database.execute(*f"ALTER{statements}".replace("...", database.name).split("; "))
    assert prepare(pipeline).stopped == ()


def test_lists_that_differ_between_two_publications(database: Database, tmp_path: Path) -> None:
    """What was changed meanwhile is decoded with the catalogue of then, so that no alteration brings it back."""
    database.execute(
        *SCHEMA,
        f"CREATE PUBLICATION {database.name} FOR TABLE items, users (id, name)",
        "CREATE PUBLICATION other FOR TABLE items, users (id, name)",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", publication=(database.name, "other"))
    prepare(pipeline)
    database.execute("ALTER PUBLICATION other SET TABLE items, users (id, born)", "UPDATE items SET sku = 'y'")
    (stopped,) = prepare(pipeline).stopped
    assert "send different columns of public.users, which the server refuses to do" in str(stopped.error)
    capture(pipeline)
    database.execute(CHANGES[0], "ALTER PUBLICATION other SET TABLE items, users (id, name)")
    assert prepare(pipeline).stopped == ()
    with pytest.raises(SourceError, match=r"different column lists.*start over with a new slot"):
        capture(pipeline)


def test_before_15_there_are_no_column_lists(postgres_14: PostgresServer, tmp_path: Path) -> None:
    from tests.fixtures.servers import fresh_database

    with fresh_database(postgres_14) as database:
        database.execute(*SCHEMA)
        (stopped,) = prepare(selecting(database, tmp_path / "lake", exclude="born")).stopped
        assert isinstance(stopped.error, PreconditionError)
        assert "column lists since version 15, this server is 14" in str(stopped.error)
        assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("items",)]
