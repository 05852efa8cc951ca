"""Facts of tables, as the catalogue has them."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.source_tables import require_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_keys_identities_and_missing_values(every_database: Database) -> None:
    every_database.execute(
        'CREATE SCHEMA "Odd.One"',
        'CREATE TABLE "Odd.One"."two keys" ("B" int, a text, gone int, PRIMARY KEY (a, "B"))',
        'ALTER TABLE "Odd.One"."two keys" DROP COLUMN gone',
        'INSERT INTO "Odd.One"."two keys" VALUES (1, \'x\')',
        'ALTER TABLE "Odd.One"."two keys" ADD COLUMN late text DEFAULT \'a, "b"\'',
        "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE whole (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE indexed (id int PRIMARY KEY, code text NOT NULL)",
        "CREATE UNIQUE INDEX code ON indexed (code) INCLUDE (id)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX code",
    )
    names = [
        QualifiedName("Odd.One", "two keys"),
        *(QualifiedName("public", n) for n in ("deferred", "whole", "indexed")),
    ]
    with connected(SecretStr(every_database.dsn)) as connection:
        facts = {fact.relname: fact for fact in relation_facts(connection, names=names)}
        by_relid = relation_facts(connection, relids=[fact.relid for fact in facts.values()])
        with pytest.raises(PreconditionError, match=r"no table public\.nothing"):
            require_tables(connection, [QualifiedName("public", "nothing")])
    assert set(by_relid) == set(facts.values())
    two_keys = facts["two keys"]
    assert (two_keys.primary_key, two_keys.replica_identity) == (("a", "B"), ("a", "B"))
    assert [(c.attnum, c.attname) for c in two_keys.columns] == [(1, "B"), (2, "a"), (4, "late")]
    assert two_keys.columns[2].attmissingval == 'a, "b"'
    assert two_keys.columns[0].typoutput == "pg_catalog.int4out"
    assert (facts["deferred"].primary_key, facts["deferred"].key) == ((), ())
    assert (facts["whole"].relreplident, facts["whole"].replica_identity, facts["whole"].key) == ("f", (), ("id",))
    assert facts["whole"].columns[1].attgenerated == "s"
    assert (facts["indexed"].replica_identity, facts["indexed"].primary_key) == (("code",), ("id",))
    assert RelationFacts.from_json(two_keys.to_json()) == two_keys
