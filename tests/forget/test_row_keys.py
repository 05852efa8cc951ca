"""A key as files hold it that were written when its column had another type."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.forget.row_keys import HeldColumn, RowKeys, matches
from spark_jobs.schema.lake_types import LakeKind, LakeType
from tests.schema.relation_facts import FACTS

INT, BIGINT, TEXT = map(LakeType, (LakeKind.INT, LakeKind.BIGINT, LakeKind.STRING))
PRICE, FINE = LakeType(LakeKind.DECIMAL, 10, 2), LakeType(LakeKind.DECIMAL, 12, 4)


@pytest.mark.parametrize(
    ("now", "then", "texts", "held"),
    [
        (BIGINT, INT, ("1", str(2**33)), [1, None]),
        (INT, BIGINT, ("-7",), [-7]),
        (FINE, PRICE, ("1.2300", "1.2345"), [Decimal("1.23"), None]),
        (PRICE, INT, ("1.00", "1.50"), [1, None]),
        (BIGINT, PRICE, ("7", str(2**60)), [Decimal(7), None]),
        (BIGINT, TEXT, ("1",), ["1"]),
        (TEXT, INT, ("1",), [1]),
    ],
)
def test_a_number_is_found_in_the_type_that_its_column_had(
    now: LakeType, then: LakeType, texts: tuple[str, ...], held: list[object]
) -> None:
    """One that the type could not hold is the key of no row, and hides no other."""
    column = replace(FACTS.columns[0], attname="id", chosen_type=now)
    keys = RowKeys(replace(FACTS, columns=(column,)), ("id",), tuple((text,) for text in texts))
    values = keys.values([HeldColumn("id", then, masked=False)])
    assert values.column("id").to_pylist() == held
    found = matches({"id": pa.array([*held, None], then.arrow)}, values)
    assert found.to_pylist() == [*(each is not None for each in held), False]
