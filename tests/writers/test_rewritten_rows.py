"""Which rows are the same to a rewrite in memory: by a key as PostgreSQL compares it, without one as it prints it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import VALID_TO_LSN
from spark_jobs.schema.net_columns import NetColumns, arrow_schema
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.table_mode import Mode
from spark_jobs.writers.file_layout import written_columns
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.rewritten_rows import rewritten

NAN = float("nan")


def of_floats(kind: LakeKind, mode: Mode, held: list[float], net: list[dict[str, Any]], *, key: bool) -> list[str]:
    """The current rows of a table with one column, printed, after a net change."""
    shape = TableShape(1, QualifiedName("public", "f"), (LakeColumn("f", 1, LakeType(kind), key),))
    columns = NetColumns(shape, mode=mode)
    rows = pa.Table.from_pylist(net, arrow_schema(columns.fields))
    source = NetSource(
        columns,
        truncated=False,
        insert_only=False,
        key_range=None,
        read=lambda _: pytest.fail("it is in memory"),
        rows=rows.num_rows,
        in_memory=rows,
    )
    schema = written_columns(shape.columns, mode)
    found = rewritten(pa.Table.from_pylist([{"f": value} for value in held], schema), source)
    assert found is not None
    return sorted(str(row["f"]) for row in found.to_pylist() if row.get(VALID_TO_LSN.name) is None)


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
