"""Tables that keep what was: the net change of random histories equals what one by one would have left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.apply.net_change.in_tasks import (
    Batches,
    TaskStep,
    final_net,
    input_fields,
    net_of_changes,
    ordered_net,
    partial_net,
)
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.truncates import truncations, without_truncates
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Delete, Insert, Truncate, Update
from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.schema.net_columns import arrow_schema
from tests.histories import KEY, SHAPE, WIDTH, History, histories, typed

COMMITS: tuple[CommitColumn, ...] = ("_commit_lsn", "_commit_time")
Key: TypeAlias = "tuple[object, ...]"
Row: TypeAlias = "tuple[object, ...]"


@dataclass
class Kept:
    """A table that keeps what was, by mode: versions that are open, with their begin; such that ended; and the last
    values of each key, with the commit that deleted it."""

    open: dict[Key, tuple[Row, int]] = field(default_factory=dict)
    ended: list[tuple[Row, int, int]] = field(default_factory=list)
    last: dict[Key, tuple[Row, int | None]] = field(default_factory=dict)

    @classmethod
    def before(cls, history: History) -> Kept:
        rows = typed(history.before)
        return cls({key: (row, 0) for key, row in rows.items()}, [], {key: (row, None) for key, row in rows.items()})

    def end(self, key: Key, lsn: int) -> None:
        row, since = self.open.pop(key)
        self.ended.append((row, since, lsn))


def one_by_one(history: History) -> Kept:
    """By commits: what a commit touched ends, and what it left begins."""
    kept = Kept.before(history)
    changes = zip(history.positions, history.messages, history.states, strict=True)
    for lsn, of_commit in groupby(changes, key=lambda change: change[0][0]):
        touched: set[Key] = set()
        for _, message, state in of_commit:
            after = typed(state)
            keys = _touched(message, {*kept.last, *after})
            touched |= keys
            for key in keys:
                if key in after:
                    kept.last[key] = after[key], None
                elif key in kept.last and kept.last[key][1] is None:
                    kept.last[key] = kept.last[key][0], lsn
        for key in touched:
            if key in kept.open:
                kept.end(key, lsn)
            if key in after:
                kept.open[key] = after[key], lsn
    return kept


def _touched(message: object, known: set[Key]) -> set[Key]:
    if isinstance(message, Truncate):
        return known
    assert isinstance(message, Insert | Update | Delete)
    tuples = [getattr(message, name, None) for name in ("old_key", "old_tuple", "new")]
    return {_key(values) for values in tuples if values is not None}


def _key(values: Any) -> Key:
    return int(values[0]), values[1].decode()


def soft_deleted(history: History, rows: pa.Table, ended: int | None) -> dict[Key, tuple[Row, int | None]]:
    """As the MERGE does."""
    before = typed(history.before)
    table: dict[Key, tuple[Row, int | None]] = {key: (row, None) for key, row in before.items()}
    written = {_own_key(row) for row in rows.to_pylist()}
    assert len(written) == len(rows)
    for row in rows.to_pylist():
        key, deleted = _own_key(row), row["deleted_at"] and int(row["deleted_at"].timestamp())
        table[key] = (_values(row, before), deleted) if row["op"] else (table[key][0], deleted)
    if ended is not None:
        table |= {key: (row, ended) for key, (row, deleted) in table.items() if key not in written and not deleted}
    return table


def versioned(history: History, rows: pa.Table, ended: int | None) -> Kept:
    """As the MERGE does: what ends is matched with what was open before, all rows at once."""
    kept, before = Kept.before(history), typed(history.before)
    begun = []
    for row in rows.to_pylist():
        if row["op"]:
            assert row["from_lsn"] == row["from_at"].timestamp()
            begun.append((_own_key(row), _values(row, before), row["from_lsn"], row["to_lsn"]))
        else:
            assert row["to_lsn"] == row["to_at"].timestamp()
            kept.end(_own_key(row), row["to_lsn"])
    if ended is not None:
        for key in list(kept.open):
            kept.end(key, ended)
    for key, values, since, until in begun:
        if until is None:
            assert key not in kept.open
            kept.open[key] = values, since
        else:
            kept.ended.append((values, since, until))
    return kept


def _own_key(row: dict[str, Any]) -> Key:
    return tuple(row[f"v{index}"] for index in KEY)


def _values(row: dict[str, Any], before: dict[Key, Row]) -> Row:
    origin = tuple(row.get(f"f{index}") for index in KEY)
    held = before.get(_own_key(row) if origin[0] is None else origin)
    values = [row[f"v{index}"] for index in range(WIDTH)]
    for index in range(WIDTH):
        if row.get(f"u{index}"):
            assert held is not None
            values[index] = held[index]
    return tuple(values)


@pytest.mark.slow
@settings(max_examples=150)
@given(histories())
def test_soft_deletes(history: History) -> None:
    net = net_change(history.rows, NetRules(SHAPE, history.relations, mode="soft_delete"))
    ended = int(net.ended.lsn) if net.ended else None
    assert soft_deleted(history, net.rows, ended) == one_by_one(history).last


@pytest.mark.slow
@settings(max_examples=150)
@given(histories())
def test_history(history: History) -> None:
    net = net_change(history.rows, NetRules(SHAPE, history.relations, mode="history"))
    ended = int(net.ended.lsn) if net.ended else None
    found, expected = versioned(history, net.rows, ended), one_by_one(history)
    assert found.open == expected.open
    assert sorted(found.ended, key=repr) == sorted(expected.ended, key=repr)
    if net.insert_only:
        assert set(net.rows.column("op").to_pylist()) <= {1}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "history"])
@settings(max_examples=60)
@given(history=histories())
def test_each_row_names_the_commit_that_wrote_it(mode: Mode, history: History) -> None:
    net, kept = (
        net_change(history.rows, NetRules(SHAPE, history.relations, mode=mode, commit_columns=COMMITS)),
        one_by_one(history),
    )
    for row in net.rows.to_pylist():
        lsn, at = row[f"v{WIDTH}"], row[f"v{WIDTH + 1}"]
        assert lsn == at.timestamp()
        if mode == "history":
            assert lsn == (row["from_lsn"] if row["to_lsn"] is None else row["to_lsn"])
        elif (there := kept.open.get(_own_key(row))) is not None:
            assert lsn == there[1]
        elif mode == "soft_delete":
            assert lsn == kept.last[_own_key(row)][1]


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "history"])
@pytest.mark.slow
@settings(max_examples=60)
@given(history=histories(), data=st.data())
def test_executors_give_the_same_result(mode: Mode, history: History, data: st.DataObject) -> None:
    """With commit columns, so that they name the same commits too."""
    rules = NetRules(SHAPE, history.relations, mode, truncations(history.rows, SHAPE), commit_columns=COMMITS)
    changes = rules.counting(_sent(history, mode))
    where = data.draw(st.lists(st.integers(0, 2), min_size=len(changes), max_size=len(changes)))
    tasks = [changes.filter(pa.array([task == its for its in where], pa.bool_())) for task in range(3)]
    sent = [batch for task in tasks for batch in partial_net(rules)(iter(task.to_batches(max_chunksize=4)))]
    whole = _run(ordered_net(rules), [changes])
    driver = net_change(history.rows, NetRules(SHAPE, history.relations, mode=mode, commit_columns=COMMITS)).rows
    assert _as_set(whole, driver) == _as_set(driver, driver)
    if not sent or any(leans for batch in sent for leans in batch.column("leans").to_pylist()):
        return
    rows = pa.Table.from_batches(sent)
    by_key = [hash(key) % 2 for key in rows.column("key").to_pylist()]
    parts = [rows.filter(pa.array([where == part for where in by_key], pa.bool_())) for part in range(2)]
    assert _as_set(_run(final_net(rules), parts), driver) == _as_set(driver, driver)


def _sent(history: History, mode: Mode) -> pa.Table:
    """What executors read of the log."""
    return without_truncates(history.rows).select(
        [field.name for field in input_fields(NetRules(SHAPE, {}, mode, commit_columns=COMMITS))]
    )


def _run(function: TaskStep, parts: list[pa.Table]) -> pa.Table:
    batches: Iterator[pa.RecordBatch] = (batch for part in parts for batch in _called(function, part))
    return pa.Table.from_batches(batches, schema=arrow_schema(function.fields))


def _called(function: TaskStep, part: pa.Table) -> Batches:
    yield from function(iter(part.to_batches(max_chunksize=5)))


def _as_set(rows: pa.Table, like: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in rows.select(like.column_names).to_pylist()}


@pytest.mark.slow
@settings(max_examples=100)
@given(histories())
def test_every_change_is_a_row(history: History) -> None:
    """On the driver and by executors, in total order; an old row or key before the new one."""
    expected: list[tuple[object, ...]] = []
    for (lsn, ordinal), message in zip(history.positions, history.messages, strict=True):
        old = getattr(message, "old_tuple", None) or getattr(message, "old_key", None)
        if isinstance(message, Update) and old is not None:
            expected.append((lsn, ordinal, "update_before", old[0]))
        new = getattr(message, "new", None) or old or (None,)
        expected.append((lsn, ordinal, type(message).__name__.lower(), new[0]))
    net = net_change(history.rows, NetRules(history.shape, history.relations, mode="append"))
    driver = _changes(net.rows)
    assert net.insert_only
    assert driver == sorted(expected, key=_order)
    rules = NetRules(history.shape, history.relations, "append")
    batches = list(net_of_changes(rules)(iter(_sent(history, "append").to_batches(max_chunksize=3))))
    executors = _changes(pa.Table.from_batches(batches, net.rows.schema))
    assert executors == [change for change in driver if change[2] != "truncate"]


def _changes(rows: pa.Table) -> list[tuple[object, ...]]:
    found = (
        (row["commit_lsn"], row["ordinal"], row["operation"], None if row["v0"] is None else str(row["v0"]).encode())
        for row in rows.to_pylist()
    )
    return sorted(found, key=_order)


def _order(change: tuple[Any, ...]) -> tuple[Any, ...]:
    return change[0], change[1], change[2] != "update_before"


@pytest.mark.slow
@settings(max_examples=60)
@given(histories(truncates=False))
def test_what_was_not_sent_is_named(history: History) -> None:
    """A null in an old tuple is called so, too, where the leaf may have sent its key alone."""
    rows = net_change(history.rows, NetRules(history.shape, history.relations, mode="append")).rows.to_pylist()
    by_place = {
        (row["commit_lsn"], row["ordinal"]): row["not_sent"] for row in rows if row["operation"] != "update_before"
    }
    names = [column.name for column in SHAPE.columns]
    for position, message in zip(history.positions, history.messages, strict=True):
        not_sent = by_place[position]
        if not isinstance(message, Update | Delete):
            continue
        old = message.old_tuple or message.old_key or (None,) * WIDTH
        no_value = [name for name, value in zip(names, old, strict=True) if value is None]
        if isinstance(message, Delete):
            whole = _is_surely_whole(history, message)
            assert not_sent == (no_value if no_value and not whole else None)
        else:
            unchanged = [name for name, new in zip(names, message.new, strict=True) if new is UNCHANGED_TOAST]
            assert not_sent == ([name for name in unchanged if name in no_value] or None)


def _is_surely_whole(history: History, message: Delete) -> bool:
    leaves = history.shape.leaf_identities
    if len(set(leaves)) == 1:
        return leaves[0] is None
    if not leaves:
        return message.old_tuple is not None
    old = message.old_tuple or message.old_key or ()
    return any(value is not None for index, value in enumerate(old) if index not in KEY)
