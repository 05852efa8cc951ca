"""Values in binary, in text, and both in one range give the same net change: on the driver and on executors."""

from __future__ import annotations

import struct
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.apply.net_change.in_tasks import final_net, ordered_net, partial_net
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.errors import DecodeError, SchemaChangeError
from spark_jobs.logicalrep.messages import BinaryValue, ColumnValue, Delete, Insert, Message, TupleData, Update
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.net_columns import arrow_schema
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from tests.histories import RELID, SHAPE, History, histories, log_rows, mapped
from tests.wire import write_message

_FORMS = (">q", "", ">i", "", "")  # of tests.histories' columns: bigint, text, int, text, text


def in_binary(message: Message, chosen: tuple[bool, ...]) -> Message:
    """The same change with the chosen columns in binary."""

    def tuple_of(values: TupleData | None) -> TupleData | None:
        return values and tuple(map(value_of, values, _FORMS, chosen))

    if isinstance(message, Insert):
        return replace(message, new=tuple_of(message.new) or ())
    if isinstance(message, Update):
        old_key, old_tuple = tuple_of(message.old_key), tuple_of(message.old_tuple)
        return replace(message, old_key=old_key, old_tuple=old_tuple, new=tuple_of(message.new) or ())
    if isinstance(message, Delete):
        return replace(message, old_key=tuple_of(message.old_key), old_tuple=tuple_of(message.old_tuple))
    return message


def value_of(value: ColumnValue, form: str, chosen: bool) -> ColumnValue:
    if not chosen or not isinstance(value, bytes):
        return value
    return BinaryValue(struct.pack(form, int(value)) if form else value)


CHOSEN = st.tuples(*[st.booleans()] * 5)


@st.composite
def mixed_histories(draw: st.DrawFn, *, truncates: bool) -> tuple[History, pa.Table]:
    """A history in text, and its rows with some values in binary: as if the option had changed from row to row."""
    history = draw(histories(truncates=truncates))
    messages = [read_message(data) for data in history.rows.column("data").to_pylist()]
    data = pa.array([write_message(in_binary(message, draw(CHOSEN))) for message in messages], pa.binary())
    at = history.rows.column_names.index("data")
    return history, history.rows.set_column(at, history.rows.schema.field("data"), data)


@pytest.mark.slow
@given(mixed_histories(truncates=True))
def test_the_driver_sees_no_difference(case: tuple[History, pa.Table]) -> None:
    history, rows = case
    expected = net_change(history.rows, NetRules(SHAPE, history.relations))
    assert net_change(rows, NetRules(SHAPE, history.relations)).rows.equals(expected.rows)


@pytest.mark.nightly
@pytest.mark.slow
@given(mixed_histories(truncates=False), st.integers(1, 3))
def test_executors_see_no_difference(case: tuple[History, pa.Table], tasks: int) -> None:
    history, rows = case
    rules = NetRules(SHAPE, history.relations)
    partial = partial_net(rules)
    outcome = [
        batch for task in range(tasks) for batch in partial(iter(rows.slice(*_part(rows, task, tasks)).to_batches()))
    ]
    kept = pa.Table.from_batches(outcome, schema=arrow_schema(partial.fields))
    leans = any(kept.column("leans").to_pylist())
    final = ordered_net(rules) if leans else final_net(rules)
    given_rows = rows if leans else kept
    got = pa.Table.from_batches(final(iter(given_rows.to_batches())), schema=arrow_schema(final.fields))
    expected = net_change(history.rows, NetRules(SHAPE, history.relations)).rows
    wanted = [f"v{index}" for index in range(len(SHAPE.columns))]
    assert got.select(["op", *wanted]).to_pylist() == expected.select(["op", *wanted]).to_pylist()


def _part(rows: pa.Table, task: int, tasks: int) -> tuple[int, int]:
    step = -(-len(rows) // tasks)
    return task * step, step


def shape_of(*columns: tuple[str, int]) -> TableShape:
    made = tuple(
        LakeColumn(name, index + 1, LakeType(LakeKind.STRING if index else LakeKind.INT), index == 0, oid)
        for index, (name, oid) in enumerate(columns)
    )
    return TableShape(RELID, QualifiedName("public", "t"), made)


def insert_of(column: RelationColumn, data: bytes) -> tuple[pa.Table, dict[int, bytes]]:
    wire = write_message(Relation(RELID, "public", "t", "d", (RelationColumn("id", 23, -1, True), column)))
    return log_rows([Insert(RELID, (b"1", BinaryValue(data)))], fingerprint(wire)), {fingerprint(wire): wire}


def test_a_type_that_needs_the_catalogue_stops_the_table() -> None:
    shape = shape_of(("id", 23), ("kind", 2205))
    rows, relations = insert_of(RelationColumn("kind", 2205, -1, False), b"\0\0\4\5")
    with pytest.raises(DecodeError) as stopped:
        net_change(rows, NetRules(shape, mapped(relations, shape)))
    assert str(stopped.value) == (
        "the change of public.t at 0/1#0 has a value of type 2205 in binary, in column kind: it cannot be read"
        " without the server: set source.binary: false and take a new snapshot of this table:"
        " postgres-cdc snapshot --table 'public.t'"
    )


def test_another_type_of_the_same_lake_type_is_not_read_by_the_old_ones_form() -> None:
    uuid, shape = bytes(range(16)), shape_of(("id", 23), ("kind", 25))
    rows, relations = insert_of(RelationColumn("kind", 2950, -1, False), uuid)
    with pytest.raises(SchemaChangeError, match=r"the type of column kind of public\.t changed before 0/1#0"):
        net_change(rows, NetRules(shape, mapped(relations, shape)))
    varchar, its_relations = insert_of(RelationColumn("kind", 1043, -1, False), b"x")
    assert net_change(varchar, NetRules(shape, mapped(its_relations, shape))).rows.column("v1").to_pylist() == ["x"]
