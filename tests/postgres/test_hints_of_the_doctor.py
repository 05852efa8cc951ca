"""What the doctor suggests as SQL is executed as it stands, on names that need quotes, and mends what it found."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import ColumnSelection, Pipeline, Table
from spark_jobs.doctor.checks import Check, Verdict
from spark_jobs.doctor.source_checks import role_check
from spark_jobs.doctor.table_checks import publication_and_table_checks
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.privileges import role_privileges
from spark_jobs.postgres.provider import SELF_MANAGED
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database
from tests.postgres.odd_role import odd_role

pytestmark = pytest.mark.postgres

# a schema and a column that are reserved words, too
ITEMS = QualifiedName("order", 'Order "Items"')
_STATEMENTS = re.compile(r"\bDO \$\$.+?\$\$|\b(?:ALTER|GRANT|CREATE) [A-Z]+ .*?(?=; [a-z]|$)")
# all that is needed, and nothing published yet
_BASE = (
    'CREATE SCHEMA "order"',
    f'CREATE TABLE {ITEMS} ("Id" int PRIMARY KEY, "a b" int, "user" text)',
    "ALTER ROLE {role} REPLICATION",
    'GRANT USAGE ON SCHEMA "order" TO {role}',
    f"GRANT SELECT ON {ITEMS} TO {{role}}",
)
_PUBLISHED = f"CREATE PUBLICATION {{database}} FOR TABLE {ITEMS}"
_KEYLESS = f'ALTER TABLE {ITEMS} DROP CONSTRAINT "Order ""Items""_pkey"'
_FULL = f"ALTER TABLE {ITEMS} REPLICA IDENTITY FULL"
_LEAF = '"order"."Leaf\'s"'
_PARTITIONED = (
    f"DROP TABLE {ITEMS}",
    f'CREATE TABLE {ITEMS} ("Id" int, "a b" int, "user" text, PRIMARY KEY ("Id", "a b")) PARTITION BY LIST ("a b")',
    f"CREATE TABLE {_LEAF} PARTITION OF {ITEMS} FOR VALUES IN (1)",
    f"GRANT SELECT ON {ITEMS} TO {{role}}",
)
_READABLE = (*_PARTITIONED, f"GRANT SELECT ON {_LEAF} TO {{role}}")
_BY_ROOT = f"{_PUBLISHED} WITH (publish_via_partition_root = true)"


def checks(pipeline: Pipeline) -> list[Check]:
    with connected(pipeline.source.dsn) as connection:
        role = role_privileges(connection)
        found = [role_check(role, SELF_MANAGED), *publication_and_table_checks(connection, pipeline, role)]
    return [check for check in found if check.verdict is not Verdict.OK]


@pytest.mark.parametrize(
    ("provoked", "table", "found"),
    [
        ((_PUBLISHED, "ALTER ROLE {role} NOREPLICATION"), {}, "no REPLICATION"),
        ((_PUBLISHED, 'REVOKE USAGE ON SCHEMA "order" FROM {role}'), {}, "no USAGE on schema"),
        ((_PUBLISHED, f"REVOKE SELECT ON {ITEMS} FROM {{role}}"), {}, "no SELECT"),
        ((_PUBLISHED, f"ALTER TABLE {ITEMS} ENABLE ROW LEVEL SECURITY"), {}, "row security hides rows"),
        ((f"ALTER TABLE {ITEMS} OWNER TO {{role}}",), {}, "may not create in this database"),
        ((), {}, "does not own"),
        (("CREATE PUBLICATION {database}",), {}, "does not publish"),
        (("CREATE PUBLICATION {database}", _KEYLESS), {}, "has no usable key"),
        ((_PUBLISHED, _KEYLESS), {"key": ("Id", "a b")}, "does not send whole rows"),
        (
            (_PUBLISHED, _KEYLESS, f'ALTER TABLE {ITEMS} ALTER "Id" DROP NOT NULL', _FULL),
            {"key": ("Id", "user")},
            "has no unique index",
        ),
        (
            (f'{_PUBLISHED} ("Id", "user")', _FULL),
            {"columns": ColumnSelection(include=("Id", "user"))},
            "has REPLICA IDENTITY FULL",
        ),
        ((f"{_PUBLISHED} WITH (publish = 'insert, delete')",), {}, "leaves out update"),
        ((f"{_PUBLISHED} WITH (publish = 'update, delete')",), {}, "leaves out insert"),
        ((f'{_PUBLISHED} ("a b", "user")',), {}, "has a key column that is not published"),
        (("CREATE PUBLICATION {database}", f"ALTER TABLE {ITEMS} SET UNLOGGED"), {}, "is unlogged"),
        ((_PUBLISHED, f'ALTER TABLE {ITEMS} ADD "_metadata" int'), {}, "names Delta Lake uses itself"),
        ((), {"columns": ColumnSelection(include=("Id", "user"))}, "does not own"),
        (_READABLE, {}, "does not own"),
        ((*_READABLE, _PUBLISHED), {}, "does not publish"),
        ((*_READABLE, "CREATE PUBLICATION {database} FOR ALL TABLES"), {}, "does not publish"),
        ((*_READABLE, "CREATE PUBLICATION {database}"), {}, "does not publish"),
        ((*_READABLE, "CREATE PUBLICATION {database}", _KEYLESS), {}, "has no key that each of its partitions sends"),
        (
            (*_READABLE, _BY_ROOT, _FULL, f"ALTER TABLE {_LEAF} REPLICA IDENTITY FULL"),
            {"columns": ColumnSelection(include=("Id", "a b", "user"))},
            "has REPLICA IDENTITY FULL",
        ),
        ((*_PARTITIONED, _BY_ROOT), {}, "no SELECT on it or on one of its partitions"),
        ((*_READABLE, _BY_ROOT, f"ALTER TABLE {_LEAF} SET UNLOGGED"), {}, "is unlogged"),
    ],
)
def test_what_the_doctor_suggests_mends_it(
    server: PostgresServer, tmp_path: Path, provoked: tuple[str, ...], table: dict[str, object], found: str
) -> None:
    with fresh_database(server, f'Odd "{uuid.uuid4().hex[:8]}"') as database, odd_role(database) as role:
        name = sql.Identifier(database.name).as_string()
        database.execute(*(text.format(role=role, database=name) for text in (*_BASE, *provoked)))
        dsn = server.dsn(database.name, user=role[1:-1].replace('""', '"'), password="pw")
        pipeline = replace(
            pipeline_of(database, tmp_path / "lake", dsn=dsn),
            tables=(Table(ITEMS, **table),),  # type: ignore[arg-type]
        )
        before = checks(pipeline)
        assert any(found in check.found for check in before), before
        for _ in range(2):  # a table has one fault of its key at a time
            for check in checks(pipeline):
                database.execute(*(filled(statement, name) for statement in suggested(check.remedy)))
        assert checks(pipeline) == []


def suggested(remedy: str) -> list[str]:
    """The statements of the first of its ways that has any."""
    ways = [_STATEMENTS.findall(way) for way in re.split(r", or ", remedy)]
    return next(statements for statements in ways if statements)


def filled(statement: str, publication: str) -> str:
    """A user knows what the dots stand for: where only the table's columns are known, no publication is named."""
    named = statement.replace("ALTER PUBLICATION ...", f"ALTER PUBLICATION {publication}")
    return named.replace("COLUMN ... TO ...", "COLUMN _metadata TO renamed")


def test_of_several_publications_the_one_that_has_the_table_is_altered(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE leaf PARTITION OF parted DEFAULT",
        'CREATE PUBLICATION "first"',
        "CREATE PUBLICATION \"the second\" FOR TABLE item, parted WITH (publish = 'insert')",
    )
    tables = ("public.item", "public.parted")
    pipeline = pipeline_of(database, tmp_path / "lake", *tables, publication=("first", "the second"))
    before = checks(pipeline)
    assert [check.found.partition(" ")[0] for check in before] == ["the", "publication"]
    for check in before:
        database.execute(*suggested(check.remedy))
    assert checks(pipeline) == []
