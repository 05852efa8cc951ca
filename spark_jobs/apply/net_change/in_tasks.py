"""The net change of a large range, in parallel: pure functions for ``DataFrame.mapInArrow``, with the outcome of
``net_change``.

::

    log.where(<one table, kinds I U D>)
       .mapInArrow(partial_net(rules))   each task gives its rows their keys
       .repartition(n, "key")            all rows of one key into one partition
       .mapInArrow(final_net(rules))     the net change, decoded and cast

Contract for the caller:

1. Look for TRUNCATEs first (one query on the log: kind 'T'): ``rules`` lists those of the range.
2. If any row of the partial outcome has ``leans``, some key move needs the old key's unchanged TOAST value, which is in
   another partition or was dropped. ``final_net`` then yields one row for its partition, with ``leans`` and without
   ``op``: discard the outcome, and run ``ordered_net`` on all rows of the range in one partition.
3. The range is insert-only if every final row is ``fresh``, and no TRUNCATE has ``ended`` rows of the table.
4. In mode ``append`` and without a key, one step is enough: ``net_of_changes``. Without a key, copies are to be summed.

Values stay unparsed in the messages until ``final_net``: a partial row is a change-log row with its key and the half
of the change that it stands for. In mode ``mirror`` a task drops changes that its own rows supersede. That is safe
because it keeps, for every key, the first action (it says whether the key had a row before the range) and everything
from the last action on that holds the whole row. Actions between these two cannot affect the outcome, whatever rows
other tasks hold. In the other modes every change counts.

Executors need pyarrow and NumPy; the code of this package is sent with the tasks. A task holds at most ``_CELLS``
values (or ``_BYTES``) in the partial step, and one partition in the final one: choose *n* accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import DELETE_HALF, PUT_HALF, Actions
from spark_jobs.apply.net_change.carry import has_unchanged, unknown_puts
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.rows import NetRows
from spark_jobs.options.table_mode import holds_changes, keeps_past
from spark_jobs.schema.net_columns import FRESH, LEANS, NetField, arrow_schema

Batches: TypeAlias = "Iterator[pa.RecordBatch]"

_CHANGES = (
    NetField("commit_lsn", pa.int64(), "bigint"),
    NetField("ordinal", pa.int64(), "bigint"),
    NetField("kind", pa.string(), "string"),
    NetField("version", pa.int64(), "bigint"),
    NetField("data", pa.binary(), "binary"),
)
_COMMIT_TIME = NetField("commit_time", pa.timestamp("us", tz="UTC"), "timestamp")
_XID = NetField("xid", pa.int64(), "bigint")
# half    0: the row stands for the change's delete of the old key only, 1: for its put only
# key     text of the key's columns joined by NUL: the column to repartition by
# leans   a key move whose row needs an unchanged TOAST value of the old key
_OF_HALVES = (NetField("half", pa.int8(), "tinyint"), NetField("key", pa.binary(), "binary"), LEANS)

_CELLS = 4_000_000
_BYTES = 64 << 20
_OUTPUT_ROWS = 50_000


def input_fields(rules: NetRules) -> tuple[NetField, ...]:
    """The columns of the change log that the first step reads."""
    timed = (_COMMIT_TIME,) if keeps_past(rules.mode) or rules.commit_columns else ()
    return (*_CHANGES, *timed, *((_XID,) if holds_changes(rules.mode) else ()))


@dataclass(frozen=True)
class TaskStep:
    """What tasks make of batches: ``run`` yields rows of ``fields``."""

    run: Callable[[Batches], Batches]
    fields: tuple[NetField, ...]

    def __call__(self, batches: Batches) -> Batches:
        return self.run(batches)


def partial_net(rules: NetRules) -> TaskStep:
    """Changes of one task, in any order → log rows with their halves and keys. Raises as ``net_change`` does."""

    def run(batches: Batches) -> Batches:
        for rows in _pieces(batches, rules):
            yield from _in_batches(_partial(rules.counting(rows), rules))

    return TaskStep(run, _partial_fields(rules))


def final_net(rules: NetRules) -> TaskStep:
    """Batches of ``partial_net`` that hold all rows of their keys → the net change, and flags for the driver."""

    def run(batches: Batches) -> Batches:
        # columns are taken by name: Spark's batches declare every column nullable, so the schemas differ
        rows = _whole(batches, _partial_fields(rules))
        if pc.any(rows.column(LEANS.name)).as_py():
            schema = arrow_schema(_final_fields(rules))
            yield pa.RecordBatch.from_pylist([{LEANS.name: True}], schema=schema)
            return
        halves = np.asarray(rows.column("half").to_numpy(), dtype=np.int8)
        yield from _final(rules.rows_by_key(rows, halves), rules)

    return TaskStep(run, _final_fields(rules))


def ordered_net(rules: NetRules) -> TaskStep:
    """All changes of the range in one partition → as ``final_net``: ``net_change`` as one task."""

    def run(batches: Batches) -> Batches:
        rows = rules.counting(_whole(batches, input_fields(rules)))
        yield from _final(rules.rows_by_key(rows), rules)

    return TaskStep(run, _final_fields(rules))


def net_of_changes(rules: NetRules) -> TaskStep:
    """Changes of one task, in any order → the rows that each of them gives; the columns of misfits come last."""

    def run(batches: Batches) -> Batches:
        for rows in _pieces(batches, rules):
            yield from _in_batches(_with_all(rules.rows_of_changes(rules.counting(rows)), rules))

    return TaskStep(run, rules.columns.with_misfits)


def _partial_fields(rules: NetRules) -> tuple[NetField, ...]:
    return (*input_fields(rules), *_OF_HALVES)


def _final_fields(rules: NetRules) -> tuple[NetField, ...]:
    return (*rules.columns.with_misfits, FRESH, LEANS)


def _partial(rows: pa.Table, rules: NetRules) -> pa.Table:
    """The actions that may matter as change-log rows, with their half, their key, and whether they lean on another."""
    actions = rules.actions(rows)
    unknown = _unknown_to_themselves(actions)
    kept = np.arange(len(actions)) if keeps_past(rules.mode) else _not_superseded(actions, unknown)
    source = rows.take(pa.array(actions.ordered.order[actions.slots[kept]]))
    named = {field.name: source.column(field.name) for field in input_fields(rules)}
    named["half"] = pa.array(np.where(actions.is_put[kept], PUT_HALF, DELETE_HALF).astype(np.int8))
    named["key"] = actions.key_texts(kept)
    named[LEANS.name] = pa.array(unknown[kept] & actions.moved[kept])
    return pa.table(named).cast(arrow_schema(_partial_fields(rules)))


def _unknown_to_themselves(actions: Actions) -> np.ndarray:
    """Which actions are puts whose own message lacks some value."""
    unknown = np.zeros(len(actions), dtype=bool)
    for index, column in enumerate(actions.ordered.shape.columns):
        if not column.key and has_unchanged(actions, index):
            unknown |= unknown_puts(actions, index)
    return unknown


def _not_superseded(actions: Actions, unknown: np.ndarray) -> np.ndarray:
    """For each key its first action, and all from the last one on that holds the whole row."""
    places = np.arange(len(actions))
    whole = places[~unknown]
    last_whole = np.full(len(actions.keys), -1, dtype=np.int64)
    last_whole[actions.codes[whole]] = whole
    return np.flatnonzero((places >= last_whole[actions.codes]) | (places == actions.first_of_key()[actions.codes]))


def _final(net: NetRows, rules: NetRules) -> Batches:
    """The net change in batches, with the flags."""
    rows = _with_all(net.rows, rules).append_column(FRESH.name, pa.array(net.fresh))
    rows = rows.append_column(LEANS.name, pa.array(np.zeros(len(rows), dtype=bool)))
    yield from _in_batches(rows.cast(arrow_schema(_final_fields(rules))))


def _with_all(rows: pa.Table, rules: NetRules) -> pa.Table:
    """``rows`` with every possible column, so that the schema is always the same. Added columns are false or null."""
    schema, known = arrow_schema(rules.columns.with_misfits), {*rows.column_names}
    nothing = (
        pa.repeat(False, len(rows)) if each == pa.bool_() else pa.nulls(len(rows), each) for each in schema.types
    )
    arrays = [rows[name] if name in known else empty for name, empty in zip(schema.names, nothing, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _whole(batches: Batches, fields: Sequence[NetField]) -> pa.Table:
    """All rows of the partition; an empty table of ``fields`` if it has none."""
    given = list(batches)
    return pa.Table.from_batches(given) if given else arrow_schema(fields).empty_table()


def _pieces(batches: Batches, rules: NetRules) -> Iterator[pa.Table]:
    """The task's rows in tables of bounded size. The larger they are, the more rows of one key come together."""
    most_rows = _CELLS // len(rules.shape.columns)
    piece: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        piece.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= most_rows or size >= _BYTES:
            yield pa.Table.from_batches(piece)
            piece, rows, size = [], 0, 0
    if piece:
        yield pa.Table.from_batches(piece)


def _in_batches(rows: pa.Table) -> Batches:
    yield from rows.to_batches(max_chunksize=_OUTPUT_ROWS)
