"""Which names are refused. What Delta and Spark really do with them: tests/spark/test_column_names.py."""

from __future__ import annotations

import pytest

from spark_jobs.schema.reserved_columns import columns_alike, reserved_columns


def test_reserved_in_any_case() -> None:
    names = ("id", "_metadata", "_METADATA", "deletionVectorId", "metadata", "op", "_Row_Dropped_")
    assert reserved_columns(names) == ("_metadata", "_METADATA", "deletionVectorId", "_Row_Dropped_")


def test_reserved_in_a_key_only() -> None:
    assert reserved_columns(("_row_id_", "_file_name_"), key=("_row_id_",)) == ("_row_id_",)


# as Delta 4.4 answered for each pair: a duplicate column, or a conflict of SET columns
@pytest.mark.parametrize("pair", ["aA", "äÄ", "ıI", "ıi", "İi", "\N{KELVIN SIGN}k", "ſs", "ßẞ", "σς", "Σς", "µμ", "ǅǆ"])
def test_alike(pair: str) -> None:
    first, second = f"x{pair[0]}", f"X{pair[1]}"
    assert columns_alike((first, "y", second)) == (first, second)


def test_a_letter_that_lower_case_makes_two() -> None:
    assert columns_alike(("İ", "i̇")) == ("İ", "i̇")


@pytest.mark.parametrize("names", [("ß", "ss", "SZ"), ("é", "e"), ("a b", "ab")])
def test_not_alike(names: tuple[str, ...]) -> None:
    assert columns_alike(names) == ()
