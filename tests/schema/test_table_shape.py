"""The columns that go to the lake, from the catalogue's facts with and without a Relation message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.errors import PreconditionError, SchemaChangeError
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.table_shape import TableShape


def column(attnum: int, attname: str, typid: int, base: int, attgenerated: str = "") -> ColumnFacts:
    return ColumnFacts(attnum, attname, typid, -1, "t", base, -1, "out", True, attgenerated)


# id is a domain over bigint; number 2 was dropped
FACTS = RelationFacts(
    relid=16384,
    nspname="public",
    relname="t",
    relreplident="d",
    primary_key=("id",),
    replica_identity=("id",),
    columns=(column(4, "sum", 23, 23, "s"), column(3, "note", 25, 25), column(1, "id", 16500, 20)),
)
WIRE = Relation(
    16384, "public", "t", "d", (RelationColumn("note", 25, -1, False), RelationColumn("id", 16500, -1, True))
)


def test_without_a_message_the_catalogue_in_attnum_order_less_what_is_generated() -> None:
    shape = TableShape.of(FACTS)
    assert [(c.name, c.attnum, c.lake_type.kind, c.key) for c in shape.columns] == [
        ("id", 1, LakeKind.BIGINT, True),
        ("note", 3, LakeKind.STRING, False),
    ]
    assert shape.key_indices == (0,)


def test_with_a_message_exactly_its_columns_in_its_order() -> None:
    shape = TableShape.of(FACTS, WIRE)
    assert [(c.name, c.lake_type.kind) for c in shape.columns] == [("note", LakeKind.STRING), ("id", LakeKind.BIGINT)]
    assert (shape.relid, str(shape.name), shape.key_indices) == (16384, "public.t", (1,))
    generated = replace(WIRE, columns=(*WIRE.columns, RelationColumn("sum", 23, -1, False)))
    assert [c.name for c in TableShape.of(FACTS, generated).columns] == ["note", "id", "sum"]


def test_full_takes_the_primary_key() -> None:
    full = replace(FACTS, relreplident="f", replica_identity=())
    assert TableShape.of(full).key_indices == (0,)


def test_without_a_key_there_is_no_shape() -> None:
    with pytest.raises(PreconditionError, match=r"public\.t has no usable key"):
        TableShape.of(replace(FACTS, relreplident="n", replica_identity=()))
    with pytest.raises(PreconditionError, match=r"public\.t: key column id is not published"):
        TableShape.of(FACTS, replace(WIRE, columns=WIRE.columns[:1]))


def test_facts_of_another_time_are_refused() -> None:
    with pytest.raises(SchemaChangeError, match="columns not known: other"):
        TableShape.of(FACTS, replace(WIRE, columns=(RelationColumn("other", 25, -1, False), *WIRE.columns)))
    with pytest.raises(SchemaChangeError, match="relid 16384 and 1"):
        TableShape.of(FACTS, replace(WIRE, relid=1))
