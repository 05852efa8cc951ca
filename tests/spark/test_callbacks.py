"""Every callback of an output plugin beyond protocol 1's, on a live server, ends in a lake that equals the source.

Before each comparison the server is asked what it sends of this WAL: none of these can pass by not being there.
https://www.postgresql.org/docs/16/logicaldecoding-output-plugin.html#LOGICALDECODING-OUTPUT-PLUGIN-CALLBACKS
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed, synced
from tests.spark.plugin_output import following, messages_of, sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# more than the 64 kB that the server holds of a transaction before it streams it
MANY = 1500
STREAMED = ("proto_version", "4", "streaming", "parallel", "two_phase", "on", "messages", "true")


def rows_of(followed: Followed, table: str, condition: str = "true") -> int:
    return (
        followed.spark.read.format("delta")
        .load(f"{followed.pipeline.lake.path}/tables/public/{table}")
        .where(condition)
        .count()
    )


@pytest.fixture(scope="module")
def streamed(
    spark: SparkSession, postgres_18: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Followed]:
    """Read with all that protocol 4 has. Every window through a copy: a peek must not pass ``two_phase``."""
    lake = tmp_path_factory.mktemp("lake")
    read = {"peek_bytes": 0, "streaming": "parallel", "two_phase": True, "messages": True}
    with following(spark, postgres_18, lake, "many", "few", **read) as followed:
        yield followed


def interleaved(database: Database) -> None:
    """Two large transactions that take turns, and a small one in between; the one that began first commits last."""
    with database.connect() as first, database.connect() as second:
        for session in (first, second):
            session.execute("BEGIN")
        first.execute(f"INSERT INTO many SELECT g, 'first' FROM generate_series(1, {MANY}) g")
        second.execute(f"INSERT INTO many SELECT g, 'second' FROM generate_series(10001, {10000 + MANY}) g")
        database.execute("INSERT INTO few VALUES (1, 'small')")
        first.execute("UPDATE many SET v = 'again' WHERE id BETWEEN 1 AND 9999")
        second.execute("COMMIT")
        first.execute("UPDATE many SET v = 'last' WHERE id = 10001")
        first.execute("COMMIT")


def aborted(database: Database) -> None:
    """A subtransaction and a whole transaction that were streamed, then rolled back."""
    with database.connect() as part, database.connect() as whole:
        part.execute("BEGIN")
        part.execute(f"INSERT INTO many SELECT g, 'kept' FROM generate_series(20001, {20000 + MANY}) g")
        part.execute("SAVEPOINT s")
        part.execute(f"INSERT INTO many SELECT g, 'rolled back' FROM generate_series(30001, {30000 + MANY}) g")
        part.execute("UPDATE few SET v = 'rolled back'")
        part.execute("ROLLBACK TO s")
        whole.execute("BEGIN")
        whole.execute(f"INSERT INTO many SELECT g, 'rolled back' FROM generate_series(40001, {40000 + MANY}) g")
        whole.execute("ROLLBACK")
        part.execute("INSERT INTO many VALUES (30001, 'in its place')")
        part.execute("COMMIT")


def truncated(database: Database) -> None:
    """In the middle of a large transaction, two tables."""
    database.execute(
        f"BEGIN; INSERT INTO many SELECT g, 'lost' FROM generate_series(50001, {50000 + MANY}) g; TRUNCATE many, few;"
        f" INSERT INTO many SELECT g, 'after' FROM generate_series(1, {MANY}) g;"
        " INSERT INTO few VALUES (7, 'x'); COMMIT"
    )


def with_message(database: Database) -> None:
    database.execute(
        f"BEGIN; UPDATE many SET v = 'before'; SELECT pg_logical_emit_message(true, 'app', 'streamed');"
        f" INSERT INTO many SELECT g, 'x' FROM generate_series(60001, {60000 + MANY}) g;"
        " SELECT pg_logical_emit_message(false, 'app', 'at once'); COMMIT"
    )


def prepared_and_committed(database: Database) -> None:
    database.execute(
        "BEGIN; UPDATE few SET v = 'two'; INSERT INTO few VALUES (70, 'two'); PREPARE TRANSACTION 'both'",
        "INSERT INTO few VALUES (71, 'between')",
        "COMMIT PREPARED 'both'",
    )


def prepared_large(database: Database) -> None:
    database.execute(
        f"BEGIN; INSERT INTO many SELECT g, 'p' FROM generate_series(80001, {80000 + MANY}) g;"
        f" DELETE FROM many WHERE id < 100; PREPARE TRANSACTION 'large'",
        "INSERT INTO few VALUES (80, 'between')",
        "COMMIT PREPARED 'large'",
    )


def prepared_and_rolled_back(database: Database) -> None:
    database.execute(
        "BEGIN; UPDATE few SET v = 'never'; PREPARE TRANSACTION 'none'",
        "INSERT INTO few VALUES (90, 'between')",
        "ROLLBACK PREPARED 'none'",
        "UPDATE few SET v = 'then' WHERE id = 90",
    )


# what is done, and which messages the server must have sent of it
STREAMING: dict[str, tuple[Callable[[Database], None], str]] = {
    "stream start, change, stop, commit": (interleaved, "SEcI"),
    "stream abort": (aborted, "SEAc"),
    "stream truncate": (truncated, "STEc"),
    "stream message": (with_message, "SMEc"),
    "begin prepare, prepare, commit prepared": (prepared_and_committed, "bPK"),
    "stream prepare": (prepared_large, "SEpK"),
    "rollback prepared": (prepared_and_rolled_back, "bPr"),
}


@pytest.mark.parametrize("callback", STREAMING)
def test_streamed_and_prepared_transactions(streamed: Followed, callback: str) -> None:
    happen, wanted = STREAMING[callback]
    happen(streamed.database)
    assert set(wanted) <= set(sent(streamed, *STREAMED))
    report = synced(streamed)
    assert any(table.outcome == "applied" for table in report.tables)
    streamed.assert_equal()


def test_messages_inside_a_stream_are_rows_of_the_messages_table(streamed: Followed) -> None:
    before = len(messages_of(streamed))
    with_message_and_savepoint = (
        "BEGIN; SELECT pg_logical_emit_message(true, 'app', 'one'); DELETE FROM many WHERE id >= 90000;"
        f" INSERT INTO many SELECT g, 'x' FROM generate_series(90001, {90000 + MANY}) g;"
        " SELECT pg_logical_emit_message(true, 'app', 'two'); COMMIT"
    )
    rolled_back = with_message_and_savepoint.replace("COMMIT", "ROLLBACK").replace("9000", "9900")
    streamed.database.execute(with_message_and_savepoint, rolled_back)
    assert set("SME") <= set(sent(streamed, *STREAMED))
    synced(streamed)
    streamed.assert_equal()
    assert messages_of(streamed)[before:] == ["one", "two"]


def test_a_prepared_transaction_shows_with_its_commit_and_not_before(streamed: Followed) -> None:
    """Prepared in one window, committed in a later one; small and streamed."""
    database = streamed.database
    database.execute(
        "BEGIN; INSERT INTO few VALUES (1001, 'p'); PREPARE TRANSACTION 'later'",
        f"BEGIN; INSERT INTO many SELECT g, 'p' FROM generate_series(100001, {100000 + MANY}) g;"
        " PREPARE TRANSACTION 'large later'",
    )
    synced(streamed)
    streamed.assert_equal()
    assert rows_of(streamed, "few", "id = 1001") == rows_of(streamed, "many", "id > 100000") == 0
    database.execute("COMMIT PREPARED 'large later'", "INSERT INTO few VALUES (1002, 'q')", "COMMIT PREPARED 'later'")
    synced(streamed)
    streamed.assert_equal()
    assert (rows_of(streamed, "few", "id > 1000"), rows_of(streamed, "many", "id > 100000")) == (2, MANY)


def test_a_transaction_still_open_comes_whole_when_it_has_committed(streamed: Followed) -> None:
    """Blocks without an end are in the first window, and again in the next."""
    with streamed.database.connect() as session:
        session.execute("BEGIN")
        session.execute(f"INSERT INTO many SELECT g, 'open' FROM generate_series(200001, {200000 + MANY}) g")
        streamed.database.execute("INSERT INTO few VALUES (2001, 'small')")
        kinds = sent(streamed, *STREAMED)
        assert "S" in kinds
        assert "c" not in kinds
        synced(streamed)
        streamed.assert_equal()
        session.execute("COMMIT")
    synced(streamed)
    streamed.assert_equal()
    assert rows_of(streamed, "many", "id > 200000") == MANY
