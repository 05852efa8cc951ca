"""Which rows are the same to a rewrite in memory: by a key as PostgreSQL compares it, without one as it prints it; and
which of them go."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any, get_args

import pyarrow as pa
import pytest

from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import VALID_TO_LSN
from spark_jobs.schema.net_columns import NetColumns, arrow_schema, value
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_arrow.file_layout import written_columns
from spark_jobs.writers.with_arrow.lost_copies import row_change

NAN = float("nan")
Row = tuple[Any, ...]


def of_floats(kind: LakeKind, mode: Mode, held: list[float], net: list[dict[str, Any]], *, key: bool) -> list[str]:
    """The current rows of a table with one column, printed, after a net change."""
    shape = TableShape(1, QualifiedName("public", "f"), (LakeColumn("f", 1, LakeType(kind), key),))
    schema = written_columns(shape.columns, mode)
    columns = NetColumns(shape, mode=mode)
    found = rewritten(pa.Table.from_pylist([{"f": value} for value in held], schema), in_memory(columns, net))
    assert found is not None
    return sorted(str(row["f"]) for row in found.to_pylist() if row.get(VALID_TO_LSN.name) is None)


def rewritten(held: pa.Table, net: NetSource, most: int = 1 << 20) -> pa.Table | None:
    """All rows of a table that has ``held`` before the net change, read in two parts."""
    change, parts = row_change(net, most), [held.slice(0, 3), held.slice(3)]
    if change.looks_ahead:
        change.touches(parts)
    added = change.added(2)
    if added is None:
        return None
    rows = [*map(change.kept, parts), *(part for piece in added for part in piece.read())]
    return pa.concat_tables(rows) if change.is_done else None


def in_memory(columns: NetColumns, net: list[dict[str, Any]], *, lenient: bool = False) -> NetSource:
    rows = pa.Table.from_pylist(net, arrow_schema(columns.fields))
    return NetSource(
        columns,
        truncated=False,
        insert_only=False,
        key_range=None,
        read=lambda _: pytest.fail("it is in memory"),
        rows=rows.num_rows,
        lenient=lenient,
        in_memory=rows,
    )


@pytest.mark.parametrize("kind", [LakeKind.FLOAT, LakeKind.DOUBLE])
@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "history"])
def test_minus_zero_is_the_key_zero(kind: LakeKind, mode: Mode) -> None:
    net = [{"op": 1, "v0": value} for value in (-0.0, NAN)]
    if mode == "history":
        net += [{"op": 0, "v0": value, "to_lsn": 7} for value in (-0.0, NAN)]
    assert of_floats(kind, mode, [0.0, NAN, 2.0], net, key=True) == ["-0.0", "2.0", "nan"]


@pytest.mark.parametrize("kind", [LakeKind.FLOAT, LakeKind.DOUBLE])
def test_without_a_key_they_are_two_rows(kind: LakeKind) -> None:
    net = [{"copies": -1, "v0": value} for value in (-0.0, NAN)]
    assert of_floats(kind, "mirror", [0.0, -0.0, NAN], net, key=False) == ["0.0"]


@pytest.mark.parametrize("columns", [get_args(CommitColumn), *((column,) for column in get_args(CommitColumn)), ()])
@pytest.mark.parametrize("lenient", [False, True])
def test_the_oldest_of_equal_rows_go(columns: tuple[CommitColumn, ...], lenient: bool) -> None:
    """Against queues, by random changes: nulls are equal, and a commit without a time is older than all others."""
    rng = random.Random(7)  # noqa: S311
    lake_type = LakeType.of_sql("int")
    assert lake_type is not None
    source = tuple(LakeColumn(name, number, lake_type, key=False) for number, name in enumerate("ab", 1))
    shape = TableShape(1, QualifiedName("public", "f"), source).with_commit_columns(columns)
    schema = written_columns(shape.columns)

    def some_row(lsn: int) -> Row:
        of_commit = {"_commit_lsn": lsn, "_commit_time": None if lsn < 3 else datetime.fromtimestamp(lsn, UTC)}
        return rng.choice([None, 1, 2]), rng.choice([None, 1]), *(of_commit[column] for column in columns)

    for _ in range(50):
        held = [some_row(rng.randrange(6)) for _ in range(rng.randrange(12))]
        added = [(some_row(rng.randrange(6, 9)), rng.randrange(1, 3)) for _ in range(rng.randrange(5))]
        gone = {some_row(0)[:2]: rng.randrange(1, 4) for _ in range(rng.randrange(4))}
        if not columns:  # one row for each set of equal rows
            added = [(row, copies) for row, copies in dict(added).items() if row not in gone]
        left = [*held, *(row for row, copies in added for _ in range(copies))]
        missing = False
        for going, copies in gone.items():
            equal = sorted((row for row in left if row[:2] == going), key=_age)
            missing |= len(equal) < copies
            for row in equal[:copies]:
                left.remove(row)
        net = [{"copies": copies, **_values(row)} for row, copies in added]
        net += [{"copies": -copies, **_values(row)} for row, copies in gone.items()]
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in held], schema)
        found = rewritten(table, in_memory(NetColumns(shape), net, lenient=lenient))
        assert (found is None) is (missing and not lenient)
        if found is not None:
            assert Counter(zip(*found.to_pydict().values(), strict=True)) == Counter(left)


@pytest.mark.parametrize("columns", [("_commit_lsn",), ()])
def test_of_rows_that_are_looked_at_first_only_so_many_are_held(columns: tuple[CommitColumn, ...]) -> None:
    lake_type = LakeType.of_sql("int")
    assert lake_type is not None
    shape = TableShape(1, QualifiedName("public", "f"), (LakeColumn("a", 1, lake_type, key=False),))
    written = NetColumns(shape.with_commit_columns(columns))
    held = pa.Table.from_pylist(
        [{"a": 1, "_commit_lsn": lsn} for lsn in range(9)], written_columns(written.shape.columns)
    )
    net = in_memory(written, [{"copies": -1, "v0": 1}])
    assert (rewritten(held, net, most=20) is None) is bool(columns)


def test_a_version_that_has_ended_keeps_its_commit() -> None:
    lake_type = LakeType.of_sql("int")
    assert lake_type is not None
    shape = TableShape(1, QualifiedName("public", "f"), (LakeColumn("id", 1, lake_type, key=True),))
    columns = NetColumns(shape.with_commit_columns(["_commit_lsn"]), mode="history")
    versions = [{"id": 1, "_commit_lsn": 5, "_valid_to_lsn": end} for end in (5, None)]
    held = pa.Table.from_pylist(versions, written_columns(columns.shape.columns, "history"))
    found = rewritten(held, in_memory(columns, [{"op": 0, "v0": 1, "v1": 9, "to_lsn": 9}]))
    assert found is not None
    assert [(row["_commit_lsn"], row["_valid_to_lsn"]) for row in found.to_pylist()] == [(5, 5), (9, 9)]


def _age(row: Row) -> list[float]:
    times = (each.timestamp() if isinstance(each, datetime) else each for each in row[2:])
    return [float(each or 0) for each in times]


def _values(row: Row) -> dict[str, object]:
    return {value(place): each for place, each in enumerate(row)}
