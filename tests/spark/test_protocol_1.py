"""Every message of pgoutput's protocol 1, sent by a live server, ends in a lake that equals the source.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TABLES = ("parent", "child", "whole", "mood")


@pytest.fixture(scope="module")
def followed(
    spark: SparkSession, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Followed]:
    """Tables of every kind of identity, one with an enum; the slot also sends logical messages."""
    with fresh_database(server) as database:
        database.execute(
            "CREATE TABLE parent (id int PRIMARY KEY, v text, doc text)",
            "ALTER TABLE parent ALTER doc SET STORAGE EXTERNAL",
            "CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent ON DELETE CASCADE)",
            "CREATE TABLE whole (id int PRIMARY KEY, v text, doc text)",
            "ALTER TABLE whole ALTER doc SET STORAGE EXTERNAL",
            "ALTER TABLE whole REPLICA IDENTITY FULL",
            "CREATE TYPE feeling AS ENUM ('sad', 'ok')",
            "CREATE TABLE mood (id int PRIMARY KEY, feeling feeling)",
            "INSERT INTO parent SELECT g, 'v', repeat(md5(g::text), 200) FROM generate_series(1, 20) g",
            "INSERT INTO child SELECT g, g FROM generate_series(1, 20) g",
            "INSERT INTO whole SELECT g, 'v', repeat(md5(g::text), 200) FROM generate_series(1, 20) g",
        )
        lake = tmp_path_factory.mktemp("lake")
        pipeline = pipeline_of(database, lake, *(f"public.{table}" for table in TABLES), messages=True)
        names = tuple(QualifiedName("public", table) for table in TABLES)
        followed = Followed(spark, database, pipeline, names)
        assert sync(pipeline, lambda: spark).errors == ()
        yield followed


def begin_and_commit_in_commit_order(database: Database) -> None:
    """Two transactions that overlap: the one that began first commits last."""
    with database.connect() as first, database.connect() as second:
        first.execute("BEGIN")
        first.execute("INSERT INTO parent VALUES (100, 'first')")
        second.execute("BEGIN")
        second.execute("UPDATE parent SET v = 'second' WHERE id = 1")
        second.execute("COMMIT")
        first.execute("UPDATE parent SET v = 'first' WHERE id = 1")
        first.execute("COMMIT")


def origin(database: Database) -> None:
    with database.connect() as session:
        session.execute(f"SELECT pg_replication_origin_create('{database.name}')")
        session.execute(f"SELECT pg_replication_origin_session_setup('{database.name}')")
        session.execute("BEGIN")
        session.execute("SELECT pg_replication_origin_xact_setup('0/ABC', now())")
        session.execute("INSERT INTO parent VALUES (101, 'from elsewhere')")
        session.execute("COMMIT")
        session.execute("SELECT pg_replication_origin_session_reset()")
    database.execute(f"SELECT pg_replication_origin_drop('{database.name}')")


IN_A_TRANSACTION = (
    "BEGIN; INSERT INTO parent VALUES (120, 'a'); SELECT pg_logical_emit_message(true, 'app', 'in');"
    " UPDATE parent SET v = 'b' WHERE id = 120; COMMIT"
)
IN_MID_TRANSACTION = (
    "BEGIN; INSERT INTO child VALUES (300, 3); TRUNCATE parent CASCADE; INSERT INTO parent VALUES (1, 'new', 'x');"
    " INSERT INTO child VALUES (1, 1); COMMIT"
)
STATEMENTS: dict[str, tuple[str, ...]] = {
    "relation: another identity between two rows": (
        "INSERT INTO child VALUES (200, 1)",
        "ALTER TABLE child REPLICA IDENTITY FULL",
        "UPDATE child SET parent_id = 2 WHERE id = 200",
        "ALTER TABLE child REPLICA IDENTITY DEFAULT",
        "UPDATE child SET parent_id = 3 WHERE id = 200",
    ),
    "type": ("INSERT INTO mood VALUES (1, 'ok'), (2, 'sad'), (3, NULL)", "UPDATE mood SET feeling = 'sad'"),
    "insert": ("INSERT INTO parent VALUES (102, NULL, NULL), (103, '', 'x')",),
    "update N, a TOASTed value unchanged": ("UPDATE parent SET v = 'n' WHERE id BETWEEN 2 AND 5",),
    "update K": ("UPDATE child SET id = 110 WHERE id = 10", "UPDATE child SET id = 10 WHERE id = 9"),
    "update O": ("UPDATE whole SET v = 'o' WHERE id < 5", "UPDATE whole SET id = 50 WHERE id = 6"),
    "delete K": ("DELETE FROM parent WHERE id = 7",),
    "delete O": ("DELETE FROM whole WHERE id = 8",),
    "message, in a transaction and outside": (
        IN_A_TRANSACTION,
        "SELECT pg_logical_emit_message(false, 'app', 'out')",
        "DELETE FROM parent WHERE id = 120",
        "UPDATE parent SET v = v || 'm' WHERE id = 12",
    ),
    "truncate of several tables, in mid-transaction": (IN_MID_TRANSACTION, "TRUNCATE mood"),
}


def run(*statements: str) -> Callable[[Database], None]:
    def on(database: Database) -> None:
        database.execute(*statements)

    return on


MESSAGES: dict[str, Callable[[Database], None]] = {
    "begin and commit": begin_and_commit_in_commit_order,
    "origin": origin,
    **{name: run(*statements) for name, statements in STATEMENTS.items()},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_lake_equals_source(followed: Followed, message: str) -> None:
    before = followed.markers[-1].ordinal
    MESSAGES[message](followed.database)
    report = sync(followed.pipeline, lambda: followed.spark)
    assert report.errors == ()
    assert any(table.outcome == "applied" for table in report.tables)
    followed.assert_equal()
    assert followed.markers[-1].ordinal > before


def test_messages_and_origins_are_kept_in_the_log(followed: Followed, tmp_path: Path) -> None:
    """After the scenarios above, or after one of each of its own."""
    origin(followed.database)
    MESSAGES["message, in a transaction and outside"](followed.database)
    sync(followed.pipeline, lambda: followed.spark)
    log = followed.spark.read.format("delta").load(ChangeLog(followed.pipeline.lake.change_log).path)
    kept = {(row["kind"], row["origin"]) for row in log.where("kind IN ('M', 'I')").collect()}
    assert ("M", None) in kept
    assert ("I", followed.database.name) in kept


def test_messages_are_rows_of_the_messages_table(followed: Followed) -> None:
    """Those of this sync, in order, with what is known of their transaction; and once."""
    sync(followed.pipeline, lambda: followed.spark)
    before = messages(followed)
    MESSAGES["message, in a transaction and outside"](followed.database)
    followed.database.execute("BEGIN; SELECT pg_logical_emit_message(true, 'app', 'never'); ROLLBACK")
    report = sync(followed.pipeline, lambda: followed.spark)
    assert report.messages is not None
    assert (report.messages.outcome, report.messages.rows_written) == ("applied", 2)
    inside, outside = messages(followed)[len(before) :]
    assert (inside["prefix"], bytes(inside["content"]), inside["transactional"]) == ("app", b"in", True)
    assert (inside["ordinal"], inside["xid"] > 0, inside["commit_time"] is not None) == (1, True, True)
    assert Lsn.parse(inside["lsn"]) < Lsn.parse(inside["commit_lsn"]) == inside["commit_lsn_number"]
    assert (outside["prefix"], bytes(outside["content"]), outside["transactional"]) == ("app", b"out", False)
    assert (outside["xid"], outside["commit_time"], outside["lsn"]) == (None, None, outside["commit_lsn"])
    assert inside["commit_lsn_number"] < outside["commit_lsn_number"]
    sync(followed.pipeline, lambda: followed.spark)
    assert len(messages(followed)) == len(before) + 2
    cut = latest_cut(followed.pipeline.lake)
    assert cut is not None
    assert cut.table(MESSAGES_NAME) is not None
    followed.assert_equal()


def messages(followed: Followed) -> list[Any]:
    """As Spark reads them."""
    table = followed.spark.read.format("delta").load(followed.pipeline.lake.messages)
    return [row.asDict() for row in table.orderBy("commit_lsn_number", "ordinal").collect()]
