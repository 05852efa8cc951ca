"""The net change of random histories equals a dictionary that took the changes one by one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.apply.net_change.net_change import NetChange, net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.errors import DecodeError, NeedsSnapshotError, SchemaChangeError, UnrepresentableError
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, BinaryValue, Delete, Insert, Message, Truncate, Update
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from tests.histories import RELID, SHAPE, History, applied, histories, log_rows, mapped, relation_message, typed
from tests.wire import write_message

U = UNCHANGED_TOAST
WIRE = relation_message("d")
RELATIONS = mapped({fingerprint(WIRE): WIRE})


def net(*messages: Message) -> NetChange:
    return net_change(log_rows(messages, fingerprint(WIRE)), NetRules(SHAPE, RELATIONS))


@settings(max_examples=150)
@given(histories())
def test_equals_the_dictionary(history: History) -> None:
    result = net_change(history.rows, NetRules(SHAPE, history.relations))
    before = typed(history.before)
    assert applied(before, result.rows, result.truncated) == typed(history.after)
    counts = [sum(isinstance(message, kind) for message in history.messages) for kind in (Insert, Update, Delete)]
    assert [result.changes.inserts, result.changes.updates, result.changes.deletes] == counts
    if result.insert_only and not result.truncated:
        keys = {(row["v0"], row["v1"]) for row in result.rows.to_pylist()}
        assert not keys & set(before)
        assert set(result.rows.column("op").to_pylist()) <= {1}
    assert all(column == "op" or column[0] in "vuf" for column in result.rows.column_names)


@pytest.mark.slow
@given(histories(truncates=False), st.data())
def test_two_ranges_one_after_the_other_equal_one(history: History, data: st.DataObject) -> None:
    ordered = history.rows.sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")])
    cut = data.draw(st.integers(0, len(ordered)))
    table = typed(history.before)
    for part in (ordered.slice(0, cut), ordered.slice(cut)):
        result = net_change(part, NetRules(SHAPE, history.relations))
        table = applied(table, result.rows, result.truncated)
    assert table == typed(history.after)


def move(old: bytes, new: bytes, doc: bytes | object) -> Update:
    return Update(RELID, (old, b"", None, None, None), None, (new, b"", None, doc, None))  # type: ignore[arg-type]


def insert(key: bytes, doc: bytes) -> Insert:
    return Insert(RELID, (key, b"", None, doc, None))


def test_a_swap_keeps_each_rows_own_value() -> None:
    rows = net(move(b"1", b"0", U), move(b"2", b"1", U), move(b"0", b"2", U)).rows.to_pylist()
    assert [(row["op"], row["v0"], row["u3"], row["f0"]) for row in rows] == [(1, 1, True, 2), (1, 2, True, 1)]


def test_an_unchanged_value_is_not_the_null_of_an_old_tuple() -> None:
    """The root's identity is FULL, the leaf's is not: the old tuple O holds the key alone."""
    under_full = relation_message("f")
    relations = mapped({fingerprint(under_full): under_full})
    moved = Update(RELID, None, (b"1", b"", None, None, None), (b"2", b"", None, U, None))
    kept = net_change(log_rows([moved], fingerprint(under_full)), NetRules(SHAPE, relations))
    upsert = kept.rows.to_pylist()[1]
    assert (upsert["op"], upsert["v0"], upsert["v3"], upsert["u3"], upsert["f0"]) == (1, 2, None, True, 1)
    carried = net_change(log_rows([insert(b"1", b"doc"), moved], fingerprint(under_full)), NetRules(SHAPE, relations))
    assert [(row["v0"], row["v3"]) for row in carried.rows.to_pylist()] == [(2, "doc")]


def test_a_chain_of_moves_from_an_insert_carries_its_value() -> None:
    result = net(insert(b"1", b"doc"), move(b"1", b"2", U), move(b"2", b"3", U))
    assert result.insert_only
    assert result.rows.column_names == ["op", "v0", "v1", "v2", "v3", "v4"]
    assert [(row["v0"], row["v3"]) for row in result.rows.to_pylist()] == [(3, "doc")]


def test_a_move_there_and_back_keeps_the_own_row() -> None:
    rows = net(move(b"1", b"2", U), move(b"2", b"1", U)).rows
    assert "f0" not in rows.column_names
    assert rows.column("u3").to_pylist() == [True]


def test_insert_then_delete_leaves_nothing() -> None:
    result = net(insert(b"1", b""), Delete(RELID, (b"1", b"", None, None, None), None))
    assert len(result.rows) == 0
    assert result.rows.schema.field("v0").type == pa.int64()


def test_delete_then_insert_is_an_upsert_and_not_an_append() -> None:
    result = net(Delete(RELID, (b"1", b"", None, None, None), None), insert(b"1", b"n"))
    assert result.rows.column("op").to_pylist() == [1]
    assert not result.insert_only


def test_truncate_voids_what_came_before() -> None:
    truncate = Truncate((RELID,), cascade=False, restart_identity=False)
    result = net(insert(b"1", b""), truncate, insert(b"2", b""), truncate, insert(b"3", b""))
    assert (result.truncated, result.changes.truncates, result.changes.inserts) == (True, 2, 3)
    assert result.rows.column("v0").to_pylist() == [3]


def test_no_rows() -> None:
    result = net()
    assert (len(result.rows), result.truncated, result.insert_only) == (0, False, True)


def test_a_toasted_key_column_comes_from_the_old_key() -> None:
    update = Update(RELID, (b"1", b"long", None, None, None), None, (b"1", U, b"7", b"d", None))
    row = net(update).rows.to_pylist()[0]
    assert (row["op"], row["v1"], row["v2"]) == (1, "long", 7)


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        (
            [Insert(RELID, (b"1", b"", None, U, None))],
            "that enters public.t by an update at 0/1#0 arrived without the value",
        ),
        ([Insert(RELID, (None, b"", None, None, None))], "at 0/1#0 has no value in key column id"),
        (
            [Insert(RELID, (b"1", b"", BinaryValue(b"\0"), None, None))],
            "column number: not the binary form of int4 that this version knows",
        ),
        ([Insert(RELID, (b"1", b""))], "at 0/1#0 of public.t is not understood: a tuple of 2 columns"),
        (
            [Insert(RELID, (b"x", b"", None, None, None))],
            "column id: not PostgreSQL's text of bigint, in the changes 0/1#0",
        ),
        ([Insert(RELID + 1, (b"1", b"", None, None, None))], "not understood: relation 16385"),
        ([Truncate((1,), cascade=False, restart_identity=False)], "another message at 0/1#0 as a TRUNCATE"),
        (
            [
                Truncate((RELID,), cascade=False, restart_identity=False),
                Update(RELID, None, None, (b"1", b"", None, U, None)),
            ],
            "at 0/2#0 depends on a row that was truncated",
        ),
        (
            [
                Delete(RELID, (b"1", b"", None, None, None), None),
                Update(RELID, None, None, (b"1", b"", None, U, None)),
            ],
            "at 0/2#0 leaves a value unchanged in a row that was deleted",
        ),
    ],
)
def test_impossible_changes_are_errors_with_their_position(messages: list[Message], match: str) -> None:
    with pytest.raises((DecodeError, NeedsSnapshotError), match=match):
        net(*messages)


def test_a_position_given_twice_is_an_error() -> None:
    rows = log_rows([insert(b"1", b""), insert(b"2", b"")], fingerprint(WIRE), [(5, 1), (5, 1)])
    with pytest.raises(DecodeError, match=r"two changes of public\.t at 0/5#1"):
        net_change(rows, NetRules(SHAPE, RELATIONS))


def test_unknown_relation_version() -> None:
    with pytest.raises(DecodeError, match="no Relation message"):
        net_change(log_rows([insert(b"1", b"")], 1), NetRules(SHAPE, RELATIONS))


def test_other_columns_are_a_schema_change() -> None:
    relation = Relation(RELID, "public", "t", "d", (RelationColumn("id", 20, -1, True),))
    other = write_message(relation)
    messages: list[Message] = [insert(b"1", b""), Insert(RELID, (b"2",))]
    rows = log_rows(messages, [fingerprint(WIRE), fingerprint(other)])
    with pytest.raises(SchemaChangeError, match=r"columns of public\.t changed before 0/2#0"):
        net_change(rows, NetRules(SHAPE, {**RELATIONS, **mapped({fingerprint(other): other})}))


DATED = TableShape(
    RELID,
    QualifiedName("public", "t"),
    (
        LakeColumn("id", 1, LakeType(LakeKind.DATE), True, 1082),
        LakeColumn("d", 2, LakeType(LakeKind.DATE), False, 1082),
    ),
)


def test_only_rows_of_the_outcome_are_cast_and_a_key_is_never_null() -> None:
    columns = (RelationColumn("id", 1082, -1, True), RelationColumn("d", 1082, -1, False))
    wire = write_message(Relation(RELID, "public", "t", "d", columns))
    version = fingerprint(wire)
    day = b"2024-01-01"
    overwritten: list[Message] = [Insert(RELID, (day, b"infinity")), Update(RELID, None, None, (day, day))]
    assert len(net_change(log_rows(overwritten, version), NetRules(DATED, mapped({version: wire}, DATED))).rows) == 1
    value = log_rows([Insert(RELID, (day, b"infinity"))], version)
    with pytest.raises(UnrepresentableError, match=r"public\.t column d: .* in the changes 0/1#0 to 0/1#0"):
        net_change(value, NetRules(DATED, mapped({version: wire}, DATED)))
    columns_with_null = (DATED.columns[0], replace(DATED.columns[1], on_unrepresentable="null"))
    nulled = NetRules(replace(DATED, columns=columns_with_null), mapped({version: wire}, DATED))
    assert net_change(value, nulled).rows.column("v1").to_pylist() == [None]
    key = log_rows([Insert(RELID, (b"infinity", day))], version)
    with pytest.raises(UnrepresentableError, match="column id") as refused:
        net_change(key, nulled)
    assert "in a key column neither applies: correct the row at the source" in str(refused.value.hint)


def test_an_identity_without_the_lakes_key_is_refused_unless_nothing_has_to_find_its_row() -> None:
    columns = [RelationColumn(c.name, c.atttypid, -1, c.name == "number") for c in SHAPE.columns]
    wire = write_message(Relation(RELID, "public", "t", "i", tuple(columns)))
    relations = mapped({fingerprint(wire): wire})
    inserts = log_rows([insert(b"1", b"")], fingerprint(wire))
    assert len(net_change(inserts, NetRules(SHAPE, relations)).rows) == 1
    moved: list[Message] = [insert(b"1", b""), Update(RELID, None, None, (b"2", b"", b"7", None, None))]
    with pytest.raises(SchemaChangeError, match=r"identity of public\.t is \(number\) at 0/2#0, .* by \(id, part\)"):
        net_change(log_rows(moved, fingerprint(wire)), NetRules(SHAPE, relations))


def test_an_identity_wider_than_the_lakes_key_is_refused_its_old_keys_were_of_several_rows() -> None:
    columns = [RelationColumn(c.name, c.atttypid, -1, c.name in ("id", "part", "number")) for c in SHAPE.columns]
    wire = write_message(Relation(RELID, "public", "t", "d", tuple(columns)))
    relations = mapped({fingerprint(wire): wire})
    deleted: list[Message] = [Delete(RELID, (b"1", b"", b"7", None, None), None)]
    with pytest.raises(SchemaChangeError, match=r"is \(id, number, part\) at 0/1#0, .* by \(id, part\)"):
        net_change(log_rows(deleted, fingerprint(wire)), NetRules(SHAPE, relations))


def test_from_default_to_full_in_one_range() -> None:
    full = relation_message("f")
    row = (b"1", b"", b"5", b"doc", None)
    messages: list[Message] = [Insert(RELID, row), Update(RELID, None, row, (b"2", b"", None, U, None))]
    rows = log_rows(messages, [fingerprint(WIRE), fingerprint(full)])
    result = net_change(rows, NetRules(SHAPE, {**RELATIONS, **mapped({fingerprint(full): full})}))
    assert [(row["v0"], row["v2"], row["v3"]) for row in result.rows.to_pylist()] == [(2, None, "doc")]


def test_a_relation_message_of_another_table_is_refused() -> None:
    wire = write_message(Relation(RELID + 1, "public", "t", "d", ()))
    with pytest.raises(DecodeError, match="is of relation 16385"):
        net_change(log_rows([insert(b"1", b"")], 9), NetRules(SHAPE, mapped({9: wire})))


@pytest.mark.slow
@given(histories())
def test_the_arrow_types_of_other_readers(history: History) -> None:
    wide = history.rows.cast(
        pa.schema(
            [
                field.with_type(
                    {pa.string(): pa.large_string(), pa.binary(): pa.binary_view()}.get(field.type, field.type)
                )
                for field in history.rows.schema
            ]
        )
    )
    rules = NetRules(SHAPE, history.relations)
    assert net_change(wide, rules) == net_change(history.rows, rules)


def test_zero_and_minus_zero_are_one_key() -> None:
    shape = TableShape(
        RELID,
        QualifiedName("public", "t"),
        (
            LakeColumn("id", 1, LakeType(LakeKind.DOUBLE), True, 701),
            LakeColumn("n", 2, LakeType(LakeKind.INT), False, 23),
        ),
    )
    columns = (RelationColumn("id", 701, -1, True), RelationColumn("n", 23, -1, False))
    wire = write_message(Relation(RELID, "public", "t", "d", columns))
    update = Update(RELID, (b"0", None), None, (b"-0", b"1"))
    rows = net_change(log_rows([update], 3), NetRules(shape, mapped({3: wire}, shape))).rows.to_pylist()
    assert [(row["op"], str(row["v0"])) for row in rows] == [(1, "-0.0")]
