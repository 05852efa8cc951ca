"""What the doctor suggests as SQL is executed as it stands, on names that need quotes, and mends what it found."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql

from spark_jobs.configuration import ColumnSelection, Pipeline, Table
from spark_jobs.doctor.checks import Check, Verdict
from spark_jobs.doctor.source_checks import role_check
from spark_jobs.doctor.table_checks import publication_and_table_checks
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.privileges import role_privileges
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

ITEMS = QualifiedName("Odd Schema", 'Order "Items"')
_STATEMENTS = re.compile(r"\b(?:ALTER|GRANT|CREATE) [A-Z]+ .*?(?=, or |, if |; [a-z]|$)")
# all that is needed, and nothing published yet
_BASE = (
    'CREATE SCHEMA "Odd Schema"',
    f'CREATE TABLE {ITEMS} ("Id" int PRIMARY KEY, "a b" int, note text)',
    "ALTER ROLE {role} REPLICATION",
    'GRANT USAGE ON SCHEMA "Odd Schema" TO {role}',
    f"GRANT SELECT ON {ITEMS} TO {{role}}",
)
_PUBLISHED = f"CREATE PUBLICATION {{database}} FOR TABLE {ITEMS}"
_KEYLESS = f'ALTER TABLE {ITEMS} DROP CONSTRAINT "Order ""Items""_pkey"'
_NULLS = f'ALTER TABLE {ITEMS} ALTER "Id" DROP NOT NULL'
_FULL = f"ALTER TABLE {ITEMS} REPLICA IDENTITY FULL"


@contextmanager
def odd_role(database: Database) -> Iterator[str]:
    """A role of this test alone, whose name needs quotes, as an identifier."""
    name = sql.Identifier(f'Odd "{uuid.uuid4().hex[:8]}"').as_string()
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
    try:
        yield name
    finally:
        database.execute(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def checks(pipeline: Pipeline) -> list[Check]:
    with connected(pipeline.source.dsn) as connection:
        role = role_privileges(connection)
        found = [role_check(role), *publication_and_table_checks(connection, pipeline, role)]
    return [check for check in found if check.verdict is not Verdict.OK]


@pytest.mark.parametrize(
    ("provoked", "table", "found"),
    [
        ((_PUBLISHED, "ALTER ROLE {role} NOREPLICATION"), {}, "no REPLICATION"),
        ((_PUBLISHED, 'REVOKE USAGE ON SCHEMA "Odd Schema" FROM {role}'), {}, "no USAGE on schema"),
        ((_PUBLISHED, f"REVOKE SELECT ON {ITEMS} FROM {{role}}"), {}, "no SELECT"),
        ((_PUBLISHED, f"ALTER TABLE {ITEMS} ENABLE ROW LEVEL SECURITY"), {}, "row security hides rows"),
        ((f"ALTER TABLE {ITEMS} OWNER TO {{role}}",), {}, "may not create in this database"),
        ((), {}, "does not own"),
        (("CREATE PUBLICATION {database}",), {}, "not sent by publication"),
        (("CREATE PUBLICATION {database}", _KEYLESS), {}, "has no usable key"),
        ((_PUBLISHED, _KEYLESS), {"key": ("Id", "a b")}, "does not send whole rows"),
        (
            (_PUBLISHED, _KEYLESS, f'ALTER TABLE {ITEMS} ALTER "Id" DROP NOT NULL', _FULL),
            {"key": ("Id", "a b")},
            "has no unique index",
        ),
        ((_PUBLISHED, _FULL), {"columns": ColumnSelection(include=("Id", "note"))}, "has REPLICA IDENTITY FULL"),
        ((f"{_PUBLISHED} WITH (publish = 'insert, delete')",), {}, "leaves out update"),
        ((f"{_PUBLISHED} WITH (publish = 'update, delete')",), {}, "leaves out insert"),
        ((f'{_PUBLISHED} ("a b", note)',), {}, "has a key column that is not published"),
        (("CREATE PUBLICATION {database}", f"ALTER TABLE {ITEMS} SET UNLOGGED"), {}, "is unlogged"),
    ],
)
def test_what_the_doctor_suggests_mends_it(
    database: Database, tmp_path: Path, provoked: tuple[str, ...], table: dict[str, object], found: str
) -> None:
    with odd_role(database) as role:
        setup = [text.format(role=role, database=database.name) for text in (*_BASE, *provoked)]
        database.execute(*setup)
        dsn = database.server.dsn(database.name, user=role[1:-1].replace('""', '"'), password="pw")
        pipeline = replace(
            pipeline_of(database, tmp_path / "lake", dsn=dsn),
            tables=(Table(ITEMS, **table),),  # type: ignore[arg-type]
        )
        before = checks(pipeline)
        assert any(found in check.found for check in before), before
        for check in before:
            statements = _STATEMENTS.search(check.remedy)
            assert statements is not None, check.remedy
            # only where the table's columns are known, and no publication
            database.execute(statements[0].replace("ALTER PUBLICATION ...", f"ALTER PUBLICATION {database.name}"))
        after = [check for check in checks(pipeline) if found in check.found]
        assert after == []
