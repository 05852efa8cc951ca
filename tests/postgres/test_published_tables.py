"""What the publications send of each table: as pgoutput works it out, and as the server's own view tells it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database, fresh_database

pytestmark = pytest.mark.postgres

SCHEMA = (
    "CREATE SCHEMA other",
    "CREATE TABLE plain (id int PRIMARY KEY, a text, b text, s int GENERATED ALWAYS AS (id + 1) STORED)",
    "CREATE TABLE other.t (id int PRIMARY KEY)",
    "CREATE TABLE root (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)",
    "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)",
    "ALTER TABLE plain DROP COLUMN b",
    "ALTER TABLE plain ADD COLUMN b text",
)
NAMES = tuple(
    QualifiedName(*name) for name in (("public", "plain"), ("other", "t"), ("public", "root"), ("public", "leaf"))
)
PLAIN, OTHER, ROOT, LEAF = NAMES


@pytest.fixture(params=[15, 16, 17, 18])
def tables(request: pytest.FixtureRequest) -> Iterator[Database]:
    """On every server that has row filters and column lists."""
    server: PostgresServer = request.getfixturevalue(f"postgres_{request.param}")
    with fresh_database(server) as database:
        database.execute(*SCHEMA)
        yield database


def published(database: Database, *publications: str) -> dict[QualifiedName, PublishedTable]:
    with connected(SecretStr(database.dsn)) as connection:
        return published_tables(connection, publications, NAMES)


VIEW = """
SELECT t.schemaname::text, t.tablename::text, t.attnames::text[], coalesce(t.rowfilter, '')
FROM pg_publication_tables t WHERE t.pubname = 'p'
"""


@pytest.mark.parametrize(
    "publication",
    [
        "FOR TABLE plain (b, id) WHERE (id > 5), root (id) WHERE (id <> 3) WITH (publish_via_partition_root)",
        "FOR TABLE root WHERE (id <> 3), leaf WHERE (id <> 4) WITH (publish_via_partition_root)",
        "FOR TABLE root, leaf (id) WHERE (id <> 4)",
        "FOR TABLE leaf WITH (publish_via_partition_root)",
        "FOR ALL TABLES",
        "FOR ALL TABLES WITH (publish_via_partition_root)",
        "FOR TABLES IN SCHEMA other, TABLE plain WHERE (id > 5)",
        "FOR TABLES IN SCHEMA public, TABLE plain WHERE (id > 5)",
    ],
)
def test_one_publication_equals_the_servers_own_view(tables: Database, publication: str) -> None:
    tables.execute(f"CREATE PUBLICATION p {publication}")
    unsent = {"s"} if tables.server.version == 15 else set()  # whose view names generated columns that never come
    told = {
        QualifiedName(str(nspname), str(relname)): (sorted(set(columns) - unsent), row_filter)  # type: ignore[call-overload]
        for nspname, relname, columns, row_filter in tables.execute(VIEW)
    }
    found = {name: (sorted(table.columns), table.row_filter[1:-1]) for name, table in published(tables, "p").items()}
    assert found == told
    assert all(table.error is None for table in published(tables, "p").values())


def test_several_publications_together(tables: Database) -> None:
    tables.execute(
        "CREATE PUBLICATION low FOR TABLE plain WHERE (id < 5), root",
        "CREATE PUBLICATION high FOR TABLE plain WHERE (id > 9), root WITH (publish_via_partition_root)",
        "CREATE PUBLICATION every FOR TABLE plain WITH (publish = 'insert, update')",
        "CREATE PUBLICATION listed FOR TABLE plain (id, a)",
        "CREATE PUBLICATION inserts FOR TABLE plain WITH (publish = 'insert')",
        "CREATE PUBLICATION deletes FOR TABLE plain WITH (publish = 'delete')",
    )
    both = published(tables, "low", "high")
    assert both[PLAIN].row_filter == "((id < 5)) OR ((id > 9))"
    assert (ROOT in both, LEAF in both, both[ROOT].row_filter) == (True, False, ""), (
        "one sends it under its root's name"
    )
    assert LEAF in published(tables, "low")
    filters_by_operation = published(tables, "low", "every")[PLAIN].error
    assert "publications every, low have different row filters on public.plain for different" in str(
        filters_by_operation
    )
    different_columns = published(tables, "listed", "low")[PLAIN].error
    assert "publications listed, low send different columns of public.plain, which the server" in str(different_columns)
    assert published(tables, "inserts")[PLAIN].missing_operations == ("update", "delete", "truncate")
    assert published(tables, "inserts", "deletes")[PLAIN].missing_operations == ("update", "truncate")
    assert "publication deletes leaves out insert" in str(published(tables, "deletes")[PLAIN].error)


def test_before_15_whole_tables_are_sent(postgres_14: PostgresServer) -> None:
    with fresh_database(postgres_14) as database:
        database.execute(*SCHEMA, "CREATE PUBLICATION p FOR TABLE plain, root WITH (publish = 'insert, update')")
        found = published(database, "p")
    assert found == {
        PLAIN: PublishedTable(PLAIN, ("id", "a", "b"), missing_operations=("delete", "truncate"), publication="p"),
        LEAF: PublishedTable(LEAF, ("id", "a"), missing_operations=("delete", "truncate"), publication="p"),
    }


def test_stored_generated_columns(postgres_18: PostgresServer) -> None:
    """A list may name one, whatever the publication says of the others."""
    with fresh_database(postgres_18) as database:
        database.execute(
            *SCHEMA,
            "CREATE PUBLICATION p FOR TABLE plain WITH (publish_generated_columns = stored)",
            "CREATE PUBLICATION q FOR TABLE plain (id, s)",
        )
        assert published(database, "p")[PLAIN].columns == ("id", "a", "s", "b")
        assert published(database, "q")[PLAIN].columns == ("id", "s")


def test_inside_a_snapshot_the_state_of_then_is_read(tables: Database) -> None:
    tables.execute("CREATE PUBLICATION p FOR TABLE plain (id) WHERE (id > 1)")
    with connected(SecretStr(tables.dsn)) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        before = published_tables(connection, ["p"], NAMES)
        tables.execute(
            "ALTER PUBLICATION p SET TABLE plain WHERE (id > 2)", "ALTER PUBLICATION p SET (publish = 'insert')"
        )
        assert published_tables(connection, ["p"], NAMES) == before
        connection.execute("COMMIT")
        assert published_tables(connection, ["p"], NAMES) != before
