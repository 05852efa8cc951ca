"""``merge: {engine: auto}`` follows small tables of every kind through all that may happen to them without Spark: asked
for a session, the process fails. Rows are read without Spark, too; ``tests/writers`` shows that it reads the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.options.column_options import NO_OPTIONS, ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.commit_oracle import BOTH

pytestmark = pytest.mark.postgres

TABLES: dict[str, Mode] = {
    "keyed": "mirror",
    "by_float": "mirror",
    "keyless": "mirror",
    "soft": "soft_delete",
    "versions": "history",
    "changes": "append",
}
# each is one window for all tables; {t} is the table
STEPS: dict[str, tuple[str, ...]] = {
    "inserts": (
        "INSERT INTO {t} VALUES (21, 'new', 'd', 'NaN', '{{}}', '[]', 1.5), (22, 'new', 'd', '-0', NULL, NULL, NULL)",
    ),
    "updates and deletes": (
        "UPDATE {t} SET v = 'changed', x = 'NaN' WHERE id IN (1, 21)",
        "DELETE FROM {t} WHERE id = 2",
        "UPDATE {t} SET id = 30 WHERE id = 3",
        "INSERT INTO {t} SELECT * FROM {t} WHERE id = 4 AND '{t}' = 'keyless'",
    ),
    "one of two equal rows": ("DELETE FROM {t} WHERE ctid = (SELECT min(ctid) FROM {t} WHERE id = 4)",),
    "values that are not sent": ("UPDATE {t} SET v = 'the document stays', id = id + 100 WHERE id IN (5, 6)",),
    "TRUNCATE": ("DELETE FROM {t} WHERE id = 7", "TRUNCATE {t}"),
    "rows after it": ("INSERT INTO {t} SELECT g, 'v', repeat('e', 3000), g, ARRAY[g] FROM generate_series(1, 9) g",),
    "TRUNCATE and rows": ("TRUNCATE {t}", "INSERT INTO {t} SELECT g, 'w', g FROM generate_series(1, 9) g"),
    "columns that are added": (
        "ALTER TABLE {t} ADD filled int DEFAULT 5, ADD happened timestamp DEFAULT '0001-01-01 00:00:00.000001'",
        "UPDATE {t} SET filled = 6 WHERE id = 2",
    ),
    "without a value": ("ALTER TABLE {t} ADD empty timestamptz", "UPDATE {t} SET empty = now() WHERE id = 2"),
    "columns that are renamed and dropped": (
        "ALTER TABLE {t} RENAME v TO doc_old",
        "ALTER TABLE {t} RENAME doc TO v",
        'ALTER TABLE {t} RENAME doc_old TO "doc ü"',
        "ALTER TABLE {t} DROP data",
        "UPDATE {t} SET v = 'was doc' WHERE id = 3",
    ),
    "more of them": (
        "ALTER TABLE {t} ADD data int, ADD more date DEFAULT '2024-02-29'",
        "DELETE FROM {t} WHERE id = 8",
    ),
    "digits that are added": ("ALTER TABLE {t} ALTER price TYPE numeric(20,2)", "UPDATE {t} SET price = 1e17"),
    "another type": ("ALTER TABLE {t} ALTER filled TYPE bigint", "UPDATE {t} SET x = 1 WHERE id < 3"),
    "and on": ("INSERT INTO {t} (id, v) VALUES (50, 'last')", "UPDATE {t} SET x = x WHERE id = 4"),
}


def _made(name: str) -> tuple[str, ...]:
    id_type = "float8" if name == "by_float" else "int"
    identity = "REPLICA IDENTITY FULL" if name == "keyless" else "ADD PRIMARY KEY (id)"
    values = "g, 'v' || g, repeat('d', 3000), g, ARRAY[g, NULL], jsonb_build_object('g', g), g"
    return (
        f"CREATE TABLE {name} (id {id_type}, v text, doc text, x float8, tags int[], data jsonb, price numeric(9,2))",
        f"ALTER TABLE {name} {identity}, ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO {name} SELECT {values} FROM generate_series(1, 20) g",
    )


def _pipeline(database: Database, lake: Path, columns: tuple[CommitColumn, ...]) -> Pipeline:
    arrays = ColumnOptions(ChosenTypes.of({"tags": ChosenType("array")}))
    tables = (
        Table(QualifiedName("public", name), mode, options=arrays, metadata_columns=columns)
        for name, mode in TABLES.items()
    )
    tables = (replace(table, options=NO_OPTIONS) if table.name.relname == "keyless" else table for table in tables)
    return replace(pipeline_of(database, lake), tables=tuple(tables))


@pytest.mark.parametrize("columns", [(), BOTH], ids=["plain", "with commit columns"])
def test_tables_of_every_kind(database: Database, tmp_path: Path, columns: tuple[CommitColumn, ...]) -> None:
    for name in TABLES:
        database.execute(*_made(name))
    pipeline = _pipeline(database, tmp_path / "lake", columns)
    assert len(synced_without_spark(pipeline).snapshots) == len(TABLES)
    for number, (step, statements) in enumerate(STEPS.items()):
        for name in TABLES:
            database.execute(*(statement.format(t=name) for statement in statements))
        read_again = {taken.name.relname for taken in synced_without_spark(pipeline).snapshots}
        assert read_again == ({*TABLES} if step == "another type" else set()), step
        if number % 2:  # what the others leave is there one step later
            _assert_equal(pipeline, step)
    _assert_past(pipeline)
    for name in TABLES:
        assert {*columns} <= {*(rows := _rows(pipeline, name))[0]}
        assert all(row[column] for row in rows for column in columns)


def _assert_equal(pipeline: Pipeline, step: str) -> None:
    verdicts = {table.name.relname: table.verdict for table in verify(pipeline, no_spark).tables}
    assert verdicts == {name: "equal" for name, mode in TABLES.items() if mode != "append"}, step


def _assert_past(pipeline: Pipeline) -> None:
    live = {*range(1, 10), 50} - {8}
    assert {row["id"] for row in _rows(pipeline, "soft") if row["_deleted_at"] is None} == live
    assert {row["id"] for row in _rows(pipeline, "soft")} == {*range(1, 23), 30, 50, 105, 106}
    versions = Counter((row["id"], row["_valid_to_lsn"] is None) for row in _rows(pipeline, "versions"))
    assert {(key, count) for (key, is_open), count in versions.items() if is_open} == {(key, 1) for key in live}
    assert (versions[2, False], versions[30, False], versions[50, False]) == (6, 1, 0)
    operations = Counter(row["_operation"] for row in _rows(pipeline, "changes"))
    assert (operations["snapshot"], operations["truncate"], operations["delete"]) == (20 + 8, 2, 4)


def _rows(pipeline: Pipeline, name: str) -> list[dict[str, Any]]:
    return list(rows_of_table(DeltaTable(pipeline.lake.table(QualifiedName("public", name)))).to_pylist())
