"""The net change of a table without a key equals a counter that took the changes one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.apply.net_change.multiset import summed
from spark_jobs.apply.net_change.net_change import NetChange, net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.errors import NeedsSnapshotError
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Delete, Insert, Message, Truncate, TupleData, Update
from spark_jobs.logicalrep.relation import fingerprint
from tests.histories import RELID, SHAPE, log_rows, mapped, relation_message

KEYLESS = replace(SHAPE, columns=tuple(replace(column, key=False) for column in SHAPE.columns))
WIRE = relation_message("f")
RELATIONS = mapped({fingerprint(WIRE): WIRE}, KEYLESS)
Typed = tuple[object, ...]

ROWS: list[TupleData] = [
    (number, part, None, doc, None) for number in (b"1", None) for part in (b"a", b"b") for doc in (b"long", None)
]


def net(*messages: Message) -> NetChange:
    return net_change(log_rows(messages, fingerprint(WIRE)), NetRules(KEYLESS, RELATIONS))


def typed(row: TupleData) -> Typed:
    number, part, _, doc, _ = (None if value is None else bytes(value).decode() for value in row)  # type: ignore[arg-type]
    return (None if number is None else int(number), part, None, doc, None)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Counter[Typed], list[Message], Counter[Typed]]:
    """Rows before, what happens to them, and the rows after it; an update may leave its document unchanged."""
    held = [ROWS[draw(st.integers(0, len(ROWS) - 1))] for _ in range(draw(st.integers(0, 8)))]
    before = Counter(map(typed, held))
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, 12))):
        row, kind = draw(st.sampled_from(ROWS)), draw(st.integers(0, 9))
        if kind == 9:
            messages.append(Truncate((RELID,), False, False))
            held = []
        elif kind < 4 or not held:
            messages.append(Insert(RELID, row))
            held.append(row)
        else:
            old = held.pop(draw(st.integers(0, len(held) - 1)))
            if kind < 6:
                messages.append(Delete(RELID, None, old))
                continue
            keeps = old[3] is not None and draw(st.booleans())
            new = (*row[:3], old[3], row[4]) if keeps else row
            messages.append(Update(RELID, None, old, (*new[:3], UNCHANGED_TOAST, new[4]) if keeps else new))
            held.append(new)
    return before, messages, Counter(map(typed, held))


@given(changes())
def test_equals_the_counter(history: tuple[Counter[Typed], list[Message], Counter[Typed]]) -> None:
    before, messages, after = history
    result = net(*messages)
    found = Counter() if result.truncated else Counter(before)
    rows = [tuple(row.values()) for row in result.rows.to_pylist()]
    assert len({row[1:] for row in rows}) == len(rows), "each row once"
    assert all(row[0] for row in rows), "none that comes as often as it goes"
    assert result.insert_only == all(row[0] > 0 for row in rows)
    for copies, *values in rows:
        found[tuple(values)] += copies
    assert {row: count for row, count in found.items() if count} == dict(after)


@given(changes())
def test_which_rows_go_does_not_depend_on_the_order(
    history: tuple[Counter[Typed], list[Message], Counter[Typed]],
) -> None:
    """The oldest of equal rows goes with each change: what the table then lists is what all changes at once leave."""
    before, messages, _ = history
    rows = log_rows(messages, fingerprint(WIRE))
    result = net_change(rows, NetRules(KEYLESS, RELATIONS, commit_columns=("_commit_lsn",)))
    left: dict[Typed, list[int]] = {} if result.truncated else {row: [0] * count for row, count in before.items()}
    gone: Counter[Typed] = Counter()
    for copies, *values, lsn in (tuple(row.values()) for row in result.rows.to_pylist()):
        assert (lsn is None) == (copies < 0)
        if copies < 0:
            gone[tuple(values)] -= copies
        else:
            left.setdefault(tuple(values), []).extend([lsn] * copies)
    found = {row: sorted(lsns)[gone[row] :] for row, lsns in left.items()}
    assert {row: lsns for row, lsns in found.items() if lsns} == one_by_one(before, messages)


def one_by_one(before: Counter[Typed], messages: list[Message]) -> dict[Typed, list[int]]:
    queues: dict[Typed, list[int]] = {row: [0] * count for row, count in before.items()}
    for lsn, message in enumerate(messages, 1):
        if isinstance(message, Truncate):
            queues = {}
            continue
        assert isinstance(message, Insert | Update | Delete)
        old = getattr(message, "old_tuple", None)
        if old is not None:
            queues[typed(old)].pop(0)
        if not isinstance(message, Delete):
            kept = (old[i] if value is UNCHANGED_TOAST and old else value for i, value in enumerate(message.new))
            queues.setdefault(typed(tuple(kept)), []).append(lsn)
    return {row: lsns for row, lsns in queues.items() if lsns}


def test_a_missing_old_row_is_an_error() -> None:
    row = ROWS[0]
    for change in (Update(RELID, None, None, row), Delete(RELID, row, None)):
        with pytest.raises(NeedsSnapshotError, match="arrived without its old row, and the table has no key"):
            net(Insert(RELID, row), change)


def test_a_missing_value_is_an_error_and_no_null() -> None:
    with pytest.raises(NeedsSnapshotError, match="arrived without the value of column doc"):
        net(Insert(RELID, (*ROWS[0][:3], UNCHANGED_TOAST, None)))


def test_an_unchanged_value_that_the_old_row_lacks_is_an_error_and_no_null() -> None:
    key_alone: TupleData = (b"1", b"a", None, None, None)
    with pytest.raises(NeedsSnapshotError, match="arrived without the value of column doc"):
        net(Update(RELID, None, key_alone, (*key_alone[:3], UNCHANGED_TOAST, None)))


@pytest.mark.parametrize("letter", ["d", "f"])
@pytest.mark.parametrize(
    ("leaves", "whole"),
    [((None,), True), ((None, ()), True), ((("id", "part"),), False), ((None, ("id", "part")), False)],
)
def test_the_leaves_say_whether_old_rows_are_whole_and_the_letter_does_not(
    letter: str, leaves: tuple[tuple[str, ...] | None, ...], whole: bool
) -> None:
    shape, wire = replace(KEYLESS, leaf_identities=leaves), relation_message(letter)
    key_alone: TupleData = (b"1", b"a", None, None, None)
    old = (key_alone, None) if letter == "d" else (None, key_alone)
    rows, relations = log_rows([Delete(RELID, *old)], fingerprint(wire)), mapped({fingerprint(wire): wire}, shape)
    if whole:
        assert net_change(rows, NetRules(shape, relations)).rows.column("copies").to_pylist() == [-1]
        return
    with pytest.raises(NeedsSnapshotError, match="without its old row") as refused:
        net_change(rows, NetRules(shape, relations))
    assert "pg_partition_tree('public.t')" in refused.value.hint


def test_rows_are_equal_where_they_print_alike() -> None:
    floats = pa.array([0.0, -0.0, float("nan"), float("nan"), None, None, 1.0], pa.float64())
    rows = pa.table({"copies": pa.array([1, 1, 1, 1, 1, -1, -1], pa.int64()), "v0": floats})
    found = {str(row["v0"]): row["copies"] for row in summed(rows).to_pylist()}
    assert found == {"0.0": 1, "-0.0": 1, "nan": 2, "1.0": -1}
