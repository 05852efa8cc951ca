"""A corpus of values of every type, by each of the four ways into the lake; the server itself judges what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.decode.binary_samples import PREPARATION, SAMPLES, Sample
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAME = QualifiedName("public", "corpus")
OF_EACH = 16  # values of one type
COPIED, CHANGED = 0, 100  # where the ids begin of rows that the snapshot reads, and of rows that come as changes
# what the lake's types lack: see docs/types.md. `{v}` is the column
HELD = {
    "date": "CASE WHEN {v} BETWEEN '0001-01-01' AND '9999-12-31' THEN {v} END",
    "timestamp": "CASE WHEN {v} >= '0001-01-01' AND {v} < '10000-01-01' THEN {v} END",
    "timestamptz": "CASE WHEN {v} >= '0001-01-01 00:00+00' AND {v} < '10000-01-01 00:00+00' THEN {v} END",
    "numeric(10,2)": "CASE WHEN {v} <> 'NaN' THEN {v} END",
}


@dataclass(frozen=True)
class Column:
    """Column ``name`` of the corpus with the texts of its values."""

    name: str
    type_name: str
    texts: tuple[str, ...]

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name)

    def text_at(self, row: int) -> str | None:
        return self.texts[row] if row < len(self.texts) else None

    def held(self, table: str) -> sql.Composed:
        """What the lake can hold of it."""
        expression = HELD.get(self.type_name, "{v}")
        return sql.SQL(expression).format(v=sql.SQL("{}.{}").format(sql.Identifier(table), self.identifier))


def corpus(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[Column, ...]:
    def column(number: int, sample: Sample) -> Column:
        query = f"SELECT v::{sample.type_name}::text FROM ({sample.query}) AS q(v) LIMIT {OF_EACH}"
        texts = connection.execute(query).fetchall()
        return Column(f"c{number}", sample.type_name, tuple(str(text) for (text,) in texts))

    version = connection.info.server_version // 10_000
    samples = [sample for sample in SAMPLES if sample.since <= version]
    return tuple(column(number, sample) for number, sample in enumerate(samples))


def inserted(table: str, columns: Sequence[Column]) -> sql.Composed:
    values = sql.SQL(", ").join(sql.SQL("%s::" + column.type_name) for column in columns)
    return sql.SQL("INSERT INTO {} VALUES (%s, {})").format(sql.Identifier(table), values)


def insert_corpus(connection: psycopg.Connection[tuple[object, ...]], columns: Sequence[Column], first: int) -> None:
    statement = inserted("corpus", columns)
    for row in range(OF_EACH):
        connection.execute(statement, [first + row, *(column.text_at(row) for column in columns)])


def as_postgres_reads(value: object) -> str | None:
    """A value of the lake as text for the type's input function."""
    match value:
        case None | str():
            return value
        case bool() | int() | Decimal():
            return str(value)
        case float():
            return repr(value)
        case bytes() | bytearray():
            return "\\x" + value.hex()
        case date() | datetime():
            return value.isoformat()
    raise AssertionError(type(value))


def bring_back(
    spark: SparkSession,
    connection: psycopg.Connection[tuple[object, ...]],
    pipeline: Pipeline,
    columns: Sequence[Column],
) -> None:
    """The lake's rows into the table ``came_back``."""
    connection.execute("DROP TABLE IF EXISTS came_back")
    connection.execute("CREATE TABLE came_back (LIKE corpus)")
    rows = spark.read.format("delta").load(pipeline.lake.table(NAME)).toArrow().to_pylist()
    assert len(rows) == 2 * OF_EACH
    statement = inserted("came_back", columns)
    for row in rows:
        connection.execute(statement, [row["id"], *(as_postgres_reads(row[column.name]) for column in columns)])


def differing(
    connection: psycopg.Connection[tuple[object, ...]], column: Column, *, by_text: bool
) -> list[tuple[object, ...]]:
    """The values that the server finds distinct: by the type's own equality, or as it prints them."""
    # format() calls the type's own output function; a cast to text keeps what xml declares of its encoding
    as_compared = sql.SQL("CASE num_nulls({v}) WHEN 0 THEN format('%s', {v}) END" if by_text else "{v}")
    source, lake = column.held("corpus"), sql.SQL("came_back.{}").format(column.identifier)
    query = sql.SQL("SELECT id, {}::text, {}::text FROM corpus JOIN came_back USING (id) WHERE {} IS DISTINCT FROM {}")
    return connection.execute(
        query.format(source, lake, as_compared.format(v=source), as_compared.format(v=lake))
    ).fetchall()


def has_equality(connection: psycopg.Connection[tuple[object, ...]], column: Column) -> bool:
    """json, xml, point and their arrays have none."""
    try:
        connection.execute(sql.SQL("SELECT FROM corpus WHERE {0} IS DISTINCT FROM {0}").format(column.identifier))
    except psycopg.errors.UndefinedFunction:
        return False
    return True


def ways_of(database: Database) -> dict[str, dict[str, Any]]:
    return {
        "text": {},
        "binary": {"binary": True, "slot": f"{database.name}_binary"},
        "lines": {"plugin": "test_decoding", "slot": f"{database.name}_lines"},
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reader", ["driver", at_night("executors")])
def test_every_value_of_every_type_by_every_way(
    spark: SparkSession, database: Database, tmp_path: Path, reader: str, request: pytest.FixtureRequest
) -> None:
    if reader == "executors":
        request.getfixturevalue("read_by_executors")
    database.execute(*PREPARATION)
    with database.connect() as connection:
        columns = corpus(connection)
        connection.execute(
            sql.SQL("CREATE TABLE corpus (id integer PRIMARY KEY, {})").format(
                sql.SQL(", ").join(sql.SQL("{} " + c.type_name).format(c.identifier) for c in columns)
            )
        )
        insert_corpus(connection, columns, COPIED)
        ways = {
            way: replace(pipeline_of(database, tmp_path / way, str(NAME), **source), on_unrepresentable="null")
            for way, source in ways_of(database).items()
        }
        for pipeline in ways.values():
            assert sync(pipeline, lambda: spark).errors == ()
        insert_corpus(connection, columns, CHANGED)
        for pipeline in ways.values():
            assert sync(pipeline, lambda: spark).errors == ()
        compared = {column.name for column in columns if has_equality(connection, column)}
        for way, pipeline in ways.items():
            bring_back(spark, connection, pipeline, columns)
            for column in columns:
                assert differing(connection, column, by_text=True) == [], (way, column.type_name)
                assert column.name not in compared or differing(connection, column, by_text=False) == [], (
                    way,
                    column.type_name,
                )
    assert sum(len(column.texts) for column in columns) >= 400
    assert len({column.type_name for column in columns}) >= 60
    assert len(compared) > len(columns) * 3 / 4
