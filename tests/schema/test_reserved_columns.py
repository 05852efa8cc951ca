"""Which names are refused. What Delta and Spark really do with them: tests/spark/test_column_names.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.schema.reserved_columns import columns_alike, name_fault, name_remedy, reserved_columns
from tests.schema.relation_facts import FACTS, column


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


@pytest.mark.parametrize("names", [("id", "ID", "id_2", "Id"), ("_metadata", "_METADATA"), ("é" * 31, "É" * 31)])
def test_a_table_is_followed_once_its_columns_are_renamed(names: tuple[str, ...]) -> None:
    facts = replace(FACTS, columns=tuple(column(number, name, 25, 25) for number, name in enumerate(names)))
    assert name_fault(facts)
    renamed = list(names)
    for statement in name_remedy(facts).partition(", or take")[0].split("; "):
        old, new = (word.strip('"') for word in statement.partition("COLUMN ")[2].split(" TO "))
        assert len(new.encode()) <= 63
        renamed[renamed.index(old)] = new
    assert not name_fault(replace(facts, columns=tuple(column(*each, 25, 25) for each in enumerate(renamed))))
