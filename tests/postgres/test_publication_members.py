"""Who belongs to a publication is read without the locks of ``pg_publication_tables``; the answer is the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from pydantic import SecretStr

from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.fingerprints import Watched, fingerprints
from spark_jobs.postgres.publication import Publication, find_publications
from spark_jobs.postgres.published_tables import published_tables
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database, each_version, fresh_database

pytestmark = pytest.mark.postgres

SCHEMA = (
    "CREATE SCHEMA away",
    "CREATE TABLE a (id int PRIMARY KEY)",
    'CREATE TABLE "B b" (id int PRIMARY KEY)',
    "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child () INHERITS (parent)",
    "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE root_1 PARTITION OF root FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE away.root_2 PARTITION OF root FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)",
    "CREATE TABLE root_21 PARTITION OF away.root_2 FOR VALUES FROM (10) TO (15)",
    "CREATE UNLOGGED TABLE root_3 PARTITION OF root FOR VALUES FROM (20) TO (30)",
    "CREATE TABLE away.c (id int PRIMARY KEY)",
)
KINDS = ("FOR TABLE a, root", "FOR TABLE away.root_2, a, parent", "FOR TABLE root_1, away.c", "FOR ALL TABLES")
SCHEMA_KINDS = (
    "FOR TABLES IN SCHEMA away",
    "FOR TABLES IN SCHEMA public",
    "FOR TABLES IN SCHEMA away, TABLE root, a",
)
EXCEPT_KINDS = (
    "FOR ALL TABLES EXCEPT (TABLE a, parent)",
    "FOR ALL TABLES EXCEPT (TABLE root, ONLY parent)",
    'FOR ALL TABLES EXCEPT (TABLE away.c, "B b"), ALL SEQUENCES',
)
PERSISTENT = """
SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname IN ('public', 'away')
"""
SHOWN = "SELECT DISTINCT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = '{}'"
SHOWN_TOGETHER = """
SELECT DISTINCT c.relnamespace::regnamespace::text, c.relname::text
FROM pg_get_publication_tables(VARIADIC ARRAY['{}']) t JOIN pg_class c ON c.oid = t.relid
"""


@pytest.fixture(params=each_version(VERSIONS[0], VERSIONS[-1]))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with fresh_database(request.getfixturevalue(f"postgres_{request.param}")) as database:
        database.execute(*SCHEMA)
        yield database


def _publications(database: Database) -> list[str]:
    """One of each kind that this version has, with and without ``publish_via_partition_root``."""
    version = database.server.version
    kinds = [*KINDS, *(SCHEMA_KINDS if version >= 15 else ()), *(EXCEPT_KINDS if version >= 19 else ())]
    for number, kind in enumerate(kinds):
        database.execute(f"CREATE PUBLICATION leaves_{number} {kind}")
        database.execute(f"CREATE PUBLICATION roots_{number} {kind} WITH (publish_via_partition_root)")
    return [f"{which}_{number}" for number in range(len(kinds)) for which in ("leaves", "roots")]


def _names(database: Database, query: str) -> set[QualifiedName]:
    return {QualifiedName(str(nspname), str(relname)) for nspname, relname in database.execute(query)}


def test_each_kind_of_publication(database: Database) -> None:
    """``find_publication`` and ``published_tables`` name the tables that the server names; ``fingerprints`` have an
    entry for these, and for the roots that are sent as their leaves, only."""
    persistent = _names(database, PERSISTENT)
    roots = {QualifiedName("public", "root"), QualifiedName("away", "root_2")}
    for name in _publications(database):
        shown = _names(database, SHOWN.format(name))
        with connected(SecretStr(database.dsn)) as connection:
            found = find_publications(connection, [name])
            sent = published_tables(connection, [name], tuple(persistent))
            looked_at = fingerprints(connection, Watched(tuple(persistent), (name,), {}))
        assert found is not None
        assert set(found.tables) == shown, name
        assert set(sent) == shown & persistent, name
        with_entry = {table for table, fingerprint in looked_at.items() if fingerprint.entries}
        assert shown & persistent <= with_entry, name
        if not found.via_partition_root:
            assert with_entry - roots == shown & persistent, name


def test_several_publications_together(database: Database) -> None:
    if database.server.version < 16:
        pytest.skip("before 16 the server does not tell what several publications send together")
    for names in combinations(_publications(database), 2):
        shown = _names(database, SHOWN_TOGETHER.format("', '".join(names)))
        with connected(SecretStr(database.dsn)) as connection:
            found = find_publications(connection, names)
        assert found is not None
        assert set(found.tables) == shown, names


def test_what_an_excluded_root_stands_for(database_19: Database) -> None:
    database = database_19
    database.execute(
        *SCHEMA, "CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE root, a)", "CREATE PUBLICATION q FOR TABLE a"
    )
    root, a = QualifiedName("public", "root"), QualifiedName("public", "a")

    def found(*names: str) -> Publication:
        with connected(SecretStr(database.dsn)) as connection:
            publication = find_publications(connection, names)
        assert publication is not None
        return publication

    assert found("p").excluded == (a, root)
    assert [name.relname for name in found("p").excluded_partitions] == ["root_2", "root_1", "root_21", "root_3"]
    assert found("p", "q").excluded == (a, root), "what the other one sends is not looked at"
    assert found("p", "q").publishes(a)
    database.execute("CREATE TABLE root_4 PARTITION OF root FOR VALUES FROM (30) TO (40)")
    assert not found("p").publishes(QualifiedName("public", "root_4"))
