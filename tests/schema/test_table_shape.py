"""The columns that go to the lake, from the catalogue's facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.errors import PreconditionError
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.table_shape import TableShape
from tests.schema.relation_facts import FACTS


def test_for_a_snapshot_the_catalogue_in_attnum_order_less_what_is_generated() -> None:
    shape = TableShape.of(FACTS)
    assert [(c.name, c.attnum, c.lake_type.kind, c.key) for c in shape.columns] == [
        ("id", 1, LakeKind.BIGINT, True),
        ("note", 3, LakeKind.STRING, False),
    ]
    assert shape.key_indices == (0,)


def test_what_is_sent_in_the_order_of_the_numbers() -> None:
    shape = TableShape.of(FACTS, sent={3, 1, 2})
    assert [(c.name, c.lake_type.kind) for c in shape.columns] == [("id", LakeKind.BIGINT), ("note", LakeKind.STRING)]
    assert (shape.relid, str(shape.name), shape.key_indices) == (16384, "public.t", (0,))
    assert [c.name for c in TableShape.of(FACTS, sent={1, 3, 4}).columns] == ["id", "note", "sum"]


def test_full_takes_the_primary_key() -> None:
    full = replace(FACTS, relreplident="f", replica_identity=())
    assert TableShape.of(full).key_indices == (0,)


def test_a_key_may_be_missing_but_no_column_of_it() -> None:
    assert not TableShape.of(replace(FACTS, relreplident="n", replica_identity=())).has_key
    with pytest.raises(PreconditionError, match=r"public\.t has a key column that is not published: id"):
        TableShape.of(FACTS, sent={3})
