"""What PostgreSQL and the lake say about a table, in one form: of each column its comment, its type, its place in the
primary key, and whether it is masked; and the table's own comment."""

from __future__ import annotations

import json
from typing import Any

from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

ITEM, IDLE = QualifiedName("public", "item"), QualifiedName("public", "idle")
HOSTILE = "it's \"the\" item's\n\tname — größer als 🐘 \\ {%s} $$ %(x)s"
LONG = "é" * 5000

MAKING = (
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    "CREATE TABLE item (id bigint, part int, price numeric(12,2), at timestamptz, mood mood, note varchar(30))",
    "ALTER TABLE item ADD PRIMARY KEY (part, id)",
    "INSERT INTO item SELECT g, 1, g, now(), 'good', 'x' FROM generate_series(1, 9) g",
    "COMMENT ON TABLE item IS 'what is sold'",
    "COMMENT ON COLUMN item.price IS 'in euros'",
    "COMMENT ON COLUMN item.at IS 'when it was sold'",
    "CREATE TABLE idle (id int PRIMARY KEY, v text)",
    "INSERT INTO idle VALUES (1, 'a')",
    "COMMENT ON TABLE idle IS 'nothing happens here'",
)


def table_of(pipeline: Pipeline, name: QualifiedName = ITEM) -> DeltaTable:
    return DeltaTable(pipeline.lake.table(name))


def said(pipeline: Pipeline, name: QualifiedName = ITEM) -> dict[str, Any]:
    """What the table's metadata says, by the names of its columns."""
    table = table_of(pipeline, name)
    fields = json.loads(table.schema().to_json())["fields"]
    ours = ("comment", "postgres.type", "postgres.primary_key", "postgres.masked")
    metadata: dict[str, Any] = {"": table.metadata().description}
    return metadata | {field["name"]: tuple(field["metadata"].get(key) for key in ours) for field in fields}


# as psql's \\d+ reads it
CATALOGUE = """
SELECT a.attname, left(col_description(c.oid, a.attnum), 3997), format_type(a.atttypid, a.atttypmod),
  array_position(i.indkey::smallint[], a.attnum) + 1
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.oid = '{}'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def in_source(database: Database, name: QualifiedName = ITEM, *masked: str) -> dict[str, Any]:
    with database.connect() as connection:
        connection.execute("SET search_path = ''")
        rows: list[tuple[Any, ...]] = connection.execute(CATALOGUE.format(name)).fetchall()
        [(description,)] = connection.execute(f"SELECT obj_description('{name}'::regclass)").fetchall()
    metadata: dict[str, Any] = {"": description}
    return metadata | {row[0]: (*row[1:], row[0] in masked or None) for row in rows}
