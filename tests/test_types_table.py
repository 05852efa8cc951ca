"""docs/types.md, tried: each type has the lake type that it names, holds what it lists, and lacks what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from psycopg import sql
from pydantic import SecretStr

from spark_jobs.decode.values import cast_text
from spark_jobs.errors import UnrepresentableError
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.lake_types import LakeType
from tests.fixtures.servers import Database

DOCUMENT = Path(__file__).parent.parent / "docs" / "types.md"
TABLE = QualifiedName("public", "documented")


@dataclass(frozen=True)
class Documented:
    """One row of the table."""

    type: str
    lake: str
    held: tuple[str, ...]
    lost: tuple[str, ...]


MAP = DOCUMENT.read_text().partition("## Values without a counterpart")[0]
CHOICES = DOCUMENT.read_text().partition("## Another type for a column")[2]


def cells(text: str, number: int) -> list[list[list[str]]]:
    """What stands between backticks in the first cells of each row."""
    rows = [line.strip("|\n ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]*)`", cell) for cell in [*row, ""][:number]] for row in rows]


ROWS = [Documented(type_[0], lake[0], tuple(held), tuple(lost)) for type_, lake, held, lost in cells(MAP, 4)]


def test_the_table_is_read() -> None:
    assert len(ROWS) > 50
    assert sum(len(row.held) for row in ROWS) > 80
    assert sum(len(row.lost) for row in ROWS) > 12


@pytest.mark.postgres
def test_each_value_of_the_table(database: Database) -> None:
    columns = ", ".join(f"c{i} {row.type}" for i, row in enumerate(ROWS))
    database.execute(f"CREATE TABLE {TABLE} ({columns})")
    with connected(SecretStr(database.dsn)) as connection:
        (facts,) = relation_facts(connection, names=(TABLE,))
        types = [column.lake_type for column in facts.columns]
        assert {row.type: lake.sql for row, lake in zip(ROWS, types, strict=True)} == {
            row.type: row.lake for row in ROWS
        }
        for row, lake in zip(ROWS, types, strict=True):
            # format() calls the type's own output function, as the plugin and a snapshot do
            query = sql.SQL("SELECT format('%s', {}::{})")
            printed = {
                value: str(connection.execute(query.format(sql.Literal(value), sql.SQL(row.type))).fetchall()[0][0])
                for value in (*row.held, *row.lost)
            }
            for value in row.held:
                assert _text(_cast(printed[value], lake), printed[value]) == printed[value], (row.type, value)
            for value in row.lost:
                with pytest.raises(UnrepresentableError):
                    _cast(printed[value], lake)
                nulled = cast_text(pa.array([printed[value]]), lake, name="c", table="t", on_unrepresentable="null")
                assert nulled.values.to_pylist() == [None]
                assert nulled.misfits is not None
                assert nulled.misfits.to_pylist() == [printed[value]]


def _cast(text: str, lake: LakeType) -> object:
    return cast_text(pa.array([text]), lake, name="c", table="t").values.to_pylist()[0]


def _text(value: object, like: str) -> str:
    """A value of the lake as PostgreSQL prints it."""
    match value:
        case bool():
            return "t" if value else "f"
        case float():
            same = repr(value) == repr(float(like)) or pa.scalar(float(like), pa.float32()).as_py() == value
            return like if same else repr(value)
        case bytes():
            return "\\x" + value.hex()
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}".zfill(19) + (f".{value:%f}".rstrip("0") if value.microsecond else "")
            return f"{text}+00" if value.tzinfo else text
        case date() | int() | Decimal() | str():
            return str(value)
    raise AssertionError(type(value))


@pytest.mark.postgres
def test_each_value_of_the_types_that_may_be_chosen(database: Database) -> None:
    rows = [(type_[0], chosen[0], lake[0], held, lost) for type_, chosen, lake, held, lost in cells(CHOICES, 5)]
    assert len(rows) > 8
    columns = ", ".join(f"c{i} {row[0]}" for i, row in enumerate(rows))
    database.execute(f"CREATE TABLE {TABLE} ({columns})")
    types = ChosenTypes.of({f"c{i}": ChosenType.parse(row[1]) for i, row in enumerate(rows)})
    with connected(SecretStr(database.dsn)) as connection:
        (facts,) = relation_facts(connection, names=(TABLE,))
        for column, (name, _, lake, held, lost) in zip(
            with_options(facts, ColumnOptions(types)).columns, rows, strict=True
        ):
            assert column.lake_type.sql == lake
            printed, itself = (sql.SQL(query) for query in ("SELECT format('%s', {0}::{1})", "SELECT {0}::{1}"))
            for value in (*held, *lost):
                typed = sql.Literal(value), sql.SQL(name)
                text = str(connection.execute(printed.format(*typed)).fetchall()[0][0])
                if value in lost:
                    with pytest.raises(UnrepresentableError):
                        _cast(text, column.lake_type)
                    continue
                read = connection.execute(itself.format(*typed)).fetchall()[0][0]
                expected = text if lake == "variant" else read.bytes if isinstance(read, UUID) else read
                assert _cast(text, column.lake_type) == expected, (name, value)
