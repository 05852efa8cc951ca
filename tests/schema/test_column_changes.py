"""Which of the lake's columns holds a column of the source."""

from __future__ import annotations

from spark_jobs.schema.column_changes import DeltaColumn, counterparts
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn

_TEXT = LakeType(LakeKind.STRING)


def test_a_column_without_a_number_is_found_by_its_name() -> None:
    """As tables of older versions have them: a new snapshot keeps the past rows' values. Others go by their number."""
    held = [DeltaColumn("id", "string", None), DeltaColumn("before", "string", 2), DeltaColumn("gone", "string", None)]
    columns = [LakeColumn("id", 1, _TEXT, key=True), LakeColumn("now", 2, _TEXT, key=False)]
    assert counterparts(held, columns, by_number=True) == {1: held[0], 2: held[1]}
    assert counterparts(held, columns, by_number=False) == {1: held[0]}
