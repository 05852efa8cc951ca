"""Which unique indexes bear out a key that the configuration declares, on the oldest and the newest server."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.fingerprints import Watched, fingerprints
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

T = QualifiedName("public", "T t")
KEY = ("b", "A")
MADE = """CREATE TABLE "T t" (b int NOT NULL, "A" text NOT NULL, n int, UNIQUE (n))"""


def declared(database: Database) -> tuple[tuple[str, ...], int | None]:
    """The key as the facts have it, and the OID that is part of the fingerprint."""
    keys = {T: KEY, QualifiedName("public", "another"): ("b",)}
    with connected(SecretStr(database.dsn)) as connection:
        (facts,) = relation_facts(connection, names=[T], keys=keys)
        (by_relid,) = relation_facts(connection, relids=[facts.relid], keys=keys)
        seen = fingerprints(connection, Watched((T,), (database.name,), {}, keys))[T]
        (undeclared,) = relation_facts(connection, names=[T])
    assert by_relid == facts
    assert undeclared.declared_key == ()
    return facts.declared_key, seen.parts[0].declared_key


@pytest.mark.parametrize(
    "index",
    [
        'CREATE UNIQUE INDEX u ON "T t" ("A", b)',
        'CREATE UNIQUE INDEX u ON "T t" (b, "A") INCLUDE (n)',
        'ALTER TABLE "T t" ADD CONSTRAINT u UNIQUE (b, "A")',
    ],
)
def test_an_index_that_makes_rows_unique(every_database: Database, index: str) -> None:
    every_database.execute(MADE, index)
    key, oid = declared(every_database)
    assert key == KEY
    assert oid is not None


@pytest.mark.parametrize(
    "statements",
    [
        (),
        ('CREATE INDEX u ON "T t" (b, "A")',),
        ('CREATE UNIQUE INDEX u ON "T t" (b)',),
        ('CREATE UNIQUE INDEX u ON "T t" (b, "A", n)',),
        ('CREATE UNIQUE INDEX u ON "T t" (b, "A") WHERE n > 0',),
        ('CREATE UNIQUE INDEX u ON "T t" (b, "A", (n + 1))',),
        ('CREATE UNIQUE INDEX u ON "T t" (b, lower("A"))',),
        ('ALTER TABLE "T t" ADD CONSTRAINT u UNIQUE (b, "A") DEFERRABLE',),
        ('ALTER TABLE "T t" ALTER b DROP NOT NULL', 'CREATE UNIQUE INDEX u ON "T t" (b, "A")'),
    ],
)
def test_what_leaves_equal_rows_possible(every_database: Database, statements: tuple[str, ...]) -> None:
    every_database.execute(MADE, *statements)
    assert declared(every_database) == ((), None)


def test_a_not_null_that_is_not_validated_leaves_nulls(every_database: Database) -> None:
    unvalidated = 'ALTER TABLE "T t" ADD CONSTRAINT filled NOT NULL b NOT VALID'
    every_database.execute(MADE, 'ALTER TABLE "T t" ALTER b DROP NOT NULL', 'CREATE UNIQUE INDEX u ON "T t" (b, "A")')
    if every_database.server.version < 18:  # there is no such constraint yet
        assert declared(every_database) == ((), None)
        return
    every_database.execute(unvalidated)
    assert declared(every_database) == ((), None)
    every_database.execute('ALTER TABLE "T t" VALIDATE CONSTRAINT filled')
    assert declared(every_database)[0] == KEY


def test_a_reindex_leaves_a_constraint_what_it_is(every_database: Database) -> None:
    every_database.execute(MADE, 'ALTER TABLE "T t" ADD CONSTRAINT u UNIQUE (b, "A")')
    before = declared(every_database)
    every_database.execute('REINDEX TABLE CONCURRENTLY "T t"')
    assert declared(every_database) == before
    every_database.execute('ALTER TABLE "T t" DROP CONSTRAINT u', 'ALTER TABLE "T t" ADD CONSTRAINT u UNIQUE (b, "A")')
    key, oid = declared(every_database)
    assert key == KEY
    assert oid != before[1]
