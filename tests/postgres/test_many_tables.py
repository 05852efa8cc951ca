"""What the catalogue is asked costs the server the same for each table, however many there are.

Counted in rows that the server's plans go through, so that it does not depend on time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg
import pytest

from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.fingerprints import Watched, fingerprint_words
from spark_jobs.postgres.publication import find_publications
from spark_jobs.postgres.published_tables import published_tables
from spark_jobs.postgres.source_tables import source_tables
from spark_jobs.postgres.table_sizes import user_tables
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

FEW, MANY = 200, 800
_ROWS_OF_TABLE = 50
NAMES = [QualifiedName("public", f"t{number}") for number in range(MANY)]


@dataclass
class Explained:
    """A connection that counts the rows that its statements' plans go through."""

    connection: psycopg.Connection[Any]
    rows: list[float] = field(default_factory=list)

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self.connection.info

    def execute(self, statement: Any, parameters: Any = None) -> psycopg.Cursor[Any]:
        text = statement if isinstance(statement, str) else statement.as_string()
        explained = self.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters).fetchall()
        self.rows += gone_through(explained[0][0][0]["Plan"])
        return self.connection.execute(statement, parameters)


def gone_through(plan: dict[str, Any]) -> Iterator[float]:
    removed = sum(value for name, value in plan.items() if name.startswith("Rows Removed"))
    yield (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    for below in plan.get("Plans", ()):
        yield from gone_through(below)


def ddl(name: QualifiedName) -> str:
    """A table with one of each kind of object that the questions are about."""
    return (
        f"CREATE TABLE {name} (id int GENERATED ALWAYS AS IDENTITY, m mood DEFAULT 'ok', n moods, o text,"
        f" PRIMARY KEY (id)) PARTITION BY HASH (id); COMMENT ON COLUMN {name}.m IS 'a mood';"
        f" CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
    )


def words(connection: Any, names: list[QualifiedName], publication: str) -> object:
    return fingerprint_words(connection, Watched(tuple(names), (publication,), {}))


def facts(connection: Any, names: list[QualifiedName], publication: str) -> object:
    return relation_facts(connection, names=names)


def existing(connection: Any, names: list[QualifiedName], publication: str) -> object:
    return source_tables(connection, names)


def published(connection: Any, names: list[QualifiedName], publication: str) -> object:
    return published_tables(connection, (publication,), names)


def test_what_a_publication_sends_costs_the_same_for_each_of_its_tables(database: Database) -> None:
    created = "; ".join(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in NAMES)
    database.execute(created, "CREATE PUBLICATION few", "CREATE PUBLICATION many")
    database.execute(f"ALTER PUBLICATION few ADD TABLE {', '.join(map(str, NAMES[:FEW]))}")
    database.execute(f"ALTER PUBLICATION many ADD TABLE {', '.join(map(str, NAMES))}")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        cost = {}
        for name, count in (("few", FEW), ("many", MANY)):
            explained = Explained(connection)
            found = find_publications(cast("Connection", explained), (name,))
            assert found is not None
            assert len(found.tables) == count
            cost[name] = sum(explained.rows)
    assert cost["many"] < 1.5 * (MANY / FEW) * cost["few"]
    assert cost["many"] < _ROWS_OF_TABLE * MANY, "not each of the database's tables with each that is published"


def test_each_question_costs_the_same_for_each_table(database: Database) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE DOMAIN moods AS mood[]")
    database.execute("; ".join(map(ddl, NAMES)))
    database.execute("CREATE PUBLICATION many FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)")
    database.execute("CREATE PUBLICATION listed WITH (publish_via_partition_root)")
    database.execute(f"ALTER PUBLICATION listed ADD TABLE {', '.join(map(str, NAMES))}")
    questions: tuple[Callable[..., Any], ...] = (words, facts, existing, published)
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for question in questions:
            for publication in ("listed", "many"):
                few, many = Explained(connection), Explained(connection)
                assert len(question(few, NAMES[:FEW], publication)) == FEW
                assert len(question(many, NAMES, publication)) == MANY
                assert sum(many.rows) < 1.5 * (MANY / FEW) * sum(few.rows), (question.__name__, publication)


def test_listing_a_databases_tables_costs_the_same_for_each(database: Database) -> None:
    cost = {}
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for count, names in ((FEW, NAMES[:FEW]), (MANY, NAMES[FEW:])):
            connection.execute("; ".join(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
            explained = Explained(connection)
            assert len(user_tables(cast("Connection", explained))) == count
            cost[count] = sum(explained.rows)
    assert cost[MANY] < 1.5 * (MANY / FEW) * cost[FEW]
