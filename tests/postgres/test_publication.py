"""Our publication follows the configuration; a user's own is never altered."""

from __future__ import annotations

import threading

import pytest
from pydantic import SecretStr

from spark_jobs.errors import PreconditionError, SourceError
from spark_jobs.postgres import publication
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.publication import ensure_publications
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

A, B = QualifiedName("public", "a"), QualifiedName("public", "B b")
STATE = "SELECT p::text, r::text FROM pg_publication p LEFT JOIN pg_publication_rel r ON true"
TABLES = ("CREATE TABLE a (id int PRIMARY KEY)", 'CREATE TABLE "B b" (id int PRIMARY KEY)')


def test_our_publication_is_kept_in_step(every_database: Database) -> None:
    every_database.execute(*TABLES)
    with connected(SecretStr(every_database.dsn)) as connection:
        made = ensure_publications(connection, ['odd "name"'], [A])
        assert (made.ours, made.tables, made.via_partition_root) == (True, (A,), True)
        assert ensure_publications(connection, ['odd "name"'], [B, A]).tables == (B, A)
        assert ensure_publications(connection, ['odd "name"'], [B]).tables == (B,)
        assert ensure_publications(connection, ['odd "name"'], None).tables == (B,)


def test_other_tables_are_not_locked(every_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A VACUUM of a large table has this lock for hours."""
    monkeypatch.setattr(publication, "_JOINING", "1s")
    every_database.execute(*TABLES)
    entries = "SELECT oid FROM pg_publication_rel WHERE prrelid = 'a'::regclass"
    with connected(SecretStr(every_database.dsn)) as connection, every_database.connect() as session:
        ensure_publications(connection, ["p"], [A])
        entry = every_database.execute(entries)
        session.execute("BEGIN")
        session.execute("LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE")
        assert ensure_publications(connection, ["p"], [A, B]).tables == (B, A)
        assert ensure_publications(connection, ["p"], [A]).tables == (A,)
        assert every_database.execute(entries) == entry
        connection.execute("SET lock_timeout = '1s'")
        with pytest.raises(SourceError, match="another session holds a lock"):
            ensure_publications(connection, ["p"], [B])


def test_a_table_that_leaves_is_waited_for_longer_than_one_that_joins(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first, none goes on."""
    monkeypatch.setattr(publication, "_JOINING", "10ms")
    database.execute(*TABLES)
    with connected(SecretStr(database.dsn)) as connection, database.connect() as session:
        ensure_publications(connection, ["p"], [A])
        session.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE")
        vacuumed = threading.Timer(1, lambda: session.execute("COMMIT"))
        vacuumed.start()
        assert ensure_publications(connection, ["p"], [B]).tables == (B,)
        vacuumed.join()


def test_partitioned_root_is_published_by_its_own_name(every_database: Database) -> None:
    every_database.execute(
        "CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (10)",
    )
    with connected(SecretStr(every_database.dsn)) as connection:
        assert ensure_publications(connection, ["p"], [A]).tables == (A,)


@pytest.mark.parametrize(
    ("publication", "message"),
    [
        ("CREATE PUBLICATION p FOR TABLE a", r'does not publish public\."B b"'),
        ("CREATE PUBLICATION p", r'does not publish public\."B b"'),
    ],
)
def test_a_users_own_is_checked_and_never_altered(every_database: Database, publication: str, message: str) -> None:
    every_database.execute(*TABLES, publication)
    before = every_database.execute(
        "SELECT p::text, r::text FROM pg_publication p LEFT JOIN pg_publication_rel r ON true"
    )
    with connected(SecretStr(every_database.dsn)) as connection, pytest.raises(PreconditionError, match=message):
        ensure_publications(connection, ["p"], [A, B])
    after = every_database.execute(
        "SELECT p::text, r::text FROM pg_publication p LEFT JOIN pg_publication_rel r ON true"
    )
    assert after == before


def test_publication_for_all_tables_serves(every_database: Database) -> None:
    every_database.execute(*TABLES, "CREATE PUBLICATION p FOR ALL TABLES")
    with connected(SecretStr(every_database.dsn)) as connection:
        found = ensure_publications(connection, ["p"], [A])
    assert (found.ours, found.tables) == (False, (B, A))


def test_several_publications_of_the_user_are_checked_together(database: Database) -> None:
    database.execute(*TABLES, "CREATE PUBLICATION p FOR TABLE a")
    with connected(SecretStr(database.dsn)) as connection:
        with pytest.raises(PreconditionError, match=r"there is no publication q"):
            ensure_publications(connection, ["p", "q"], [A])
        assert database.execute("SELECT count(*) FROM pg_publication") == [(1,)], "none is made"
        database.execute("CREATE PUBLICATION q FOR TABLE a WITH (publish_via_partition_root)")
        with pytest.raises(PreconditionError, match=r'does not publish public\."B b"'):
            ensure_publications(connection, ["p", "q"], [A, B])
        database.execute('ALTER PUBLICATION q SET TABLE "B b"')
        found = ensure_publications(connection, ["p", "q"], [A, B])
        assert (found.ours, found.tables, found.via_partition_root) == (False, (B, A), True)
        assert ensure_publications(connection, ["p", "q"], None).tables == (B, A)


def test_our_publication_has_the_configured_column_lists(database: Database) -> None:
    """An entry that stays as it is keeps its OID: its table needs no new snapshot."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, x text, y text)",
        'CREATE TABLE "B b" (id int PRIMARY KEY)',
        "CREATE TABLE child () INHERITS (a)",
    )
    entries = "SELECT prrelid::regclass::text, prattrs::text, oid FROM pg_publication_rel ORDER BY 1"
    with connected(SecretStr(database.dsn)) as connection:
        ensure_publications(connection, ["p"], [A, B], {A: ("id", "y")})
        [b, a] = database.execute(entries)
        assert (b[:2], a[:2]) == (('"B b"', None), ("a", "1 3")), "and nothing of the table that inherits"
        ensure_publications(connection, ["p"], [B, A], {A: ("id", "y")})
        assert database.execute(entries) == [b, a]
        ensure_publications(connection, ["p"], [A, B], {A: ("id", "x")})
        [same, altered] = database.execute(entries)
        assert (same, altered[:2], altered[2] == a[2]) == (b, ("a", "1 2"), False)
        ensure_publications(connection, ["p"], [A, B])
        assert database.execute(entries)[1][:2] == ("a", None)
        database.execute('ALTER PUBLICATION p SET TABLE a WHERE (id > 1), "B b"')
        ensure_publications(connection, ["p"], [A, B])
        assert database.execute("SELECT count(*) FROM pg_publication_rel WHERE prqual IS NOT NULL") == [(0,)]
