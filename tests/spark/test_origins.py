"""Replication origins: kept in the change log with name and LSN, or filtered away (``origin: none``), on live servers.

https://www.postgresql.org/docs/current/replication-origins.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.errors import ConfigurationError
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database
from tests.log_rows import log_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = pytest.mark.postgres

# more than the 64 kB that the server holds of a transaction before it streams it
MANY = 1500
LARGE = f"INSERT INTO item SELECT g, 'large' FROM generate_series(1001, {1000 + MANY}) g"


@pytest.fixture(params=[16, 18])
def source(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table with one row, on a server that has ``origin``."""
    server: PostgresServer = request.getfixturevalue(f"postgres_{request.param}")
    with fresh_database(server) as database:
        database.execute(
            f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
            "CREATE TABLE item (id int PRIMARY KEY, v text)",
            "INSERT INTO item VALUES (1, 'here')",
        )
        yield database


@contextmanager
def node(database: Database) -> Iterator[None]:
    database.execute(f"SELECT pg_replication_origin_create('{database.name}')")
    try:
        yield
    finally:
        database.execute(f"SELECT pg_replication_origin_drop('{database.name}')")


def replay(database: Database, origin_lsn: str, *statements: str, end: str = "COMMIT") -> None:
    """One transaction as a subscription's apply worker would replay it."""
    with database.connect() as session:
        session.execute(f"SELECT pg_replication_origin_session_setup('{database.name}')")
        session.execute("BEGIN")
        session.execute(f"SELECT pg_replication_origin_xact_setup('{origin_lsn}', now())")
        for statement in statements:
            session.execute(statement)
        session.execute(end)
        session.execute("SELECT pg_replication_origin_session_reset()")


def logged(pipeline: Any) -> list[tuple[str, str | None, int | None]]:
    """Kind, origin and origin LSN of every change, in total order."""
    rows = [row for row in log_rows(pipeline) if row["kind"] in "IUDTM"]
    rows.sort(key=lambda row: (row["commit_lsn"], row["ordinal"]))
    return [(row["kind"], row["origin"], row["origin_lsn"]) for row in rows]


def test_the_log_keeps_name_and_lsn(source: Database, tmp_path: Path) -> None:
    pipeline = pipeline_of(source, tmp_path / "lake", "public.item", messages=True)
    prepare_slot(pipeline)
    with node(source):
        source.execute("INSERT INTO item VALUES (2, 'here')")
        message = "SELECT pg_logical_emit_message(true, 'app', 'x')"
        replay(source, "1/ABC", "INSERT INTO item VALUES (3, 'there')", message)
        source.execute("UPDATE item SET v = 'here' WHERE id = 3")
        replay(source, "1/DEF", "DELETE FROM item WHERE id = 1")
        capture(pipeline)
    there = source.name, 0x1_0000_0ABC
    assert logged(pipeline) == [
        ("I", None, None),
        ("I", *there),
        ("M", *there),
        ("U", None, None),
        ("D", source.name, 0x1_0000_0DEF),
    ]


def test_a_streamed_transaction_has_the_name_alone(source: Database, tmp_path: Path) -> None:
    """pgoutput says of it where it is from, not where it was committed there: that is not known when it is streamed."""
    pipeline = pipeline_of(source, tmp_path / "lake", "public.item", streaming="on")
    prepare_slot(pipeline)
    with node(source):
        replay(source, "1/ABC", LARGE)
        capture(pipeline)
    assert logged(pipeline) == [("I", source.name, None)] * MANY


@pytest.mark.spark
@pytest.mark.parametrize("whole", [False, True], ids=["protocol 1", "streamed and prepared"])
def test_origin_none_leaves_out_what_was_replayed(
    source: Database, tmp_path: Path, spark: SparkSession, whole: bool
) -> None:
    """The lake, from its snapshot on, shows the changes made here and none that were replayed."""
    options: dict[str, Any] = {"streaming": "on", "two_phase": True} if whole else {}
    pipeline = pipeline_of(source, tmp_path / "lake", "public.item", origin="none", peek_bytes=0, **options)
    assert sync(pipeline, lambda: spark).errors == ()
    with node(source):
        replay(source, "1/ABC", "INSERT INTO item VALUES (2, 'there')", "UPDATE item SET v = 'there' WHERE id = 1")
        replay(source, "1/ACE", LARGE)
        source.execute("INSERT INTO item VALUES (3, 'here')")
        if whole:
            replay(source, "1/DEF", "INSERT INTO item VALUES (4, 'there')", end="PREPARE TRANSACTION 'there'")
            source.execute(
                "BEGIN; INSERT INTO item VALUES (5, 'here'); PREPARE TRANSACTION 'here'",
                "COMMIT PREPARED 'there'",
                "COMMIT PREPARED 'here'",
            )
        report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    lake = spark.read.format("delta").load(f"{pipeline.lake.path}/tables/public/item").collect()
    expected = [(1, "here"), (3, "here"), *([(5, "here")] if whole else [])]
    assert sorted(map(tuple, lake)) == expected
    assert {origin for _, origin, _ in logged(pipeline)} == {None}


def test_origin_none_is_refused_by_name_where_the_server_is_too_old(
    postgres_15: PostgresServer, tmp_path: Path
) -> None:
    with fresh_database(postgres_15) as database:
        database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
        pipeline = pipeline_of(database, tmp_path / "lake", "public.item", origin="none")
        with pytest.raises(ConfigurationError, match=r"source\.origin: none needs PostgreSQL 16, the server is 15"):
            prepare_slot(pipeline)
        assert database.execute("SELECT 1 FROM pg_replication_slots") == []
        assert database.execute("SELECT 1 FROM pg_publication") == []
