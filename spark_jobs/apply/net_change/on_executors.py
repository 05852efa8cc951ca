"""The net change of a large range, in parallel: pure functions for ``DataFrame.mapInArrow``, with the outcome of
``net_change``.

::

    log.where(<one table, kinds I U D, after its last TRUNCATE>)
       .mapInArrow(partial_net(...), PARTIAL_SCHEMA)      each task drops changes that its own rows supersede
       .repartition(n, "key")                             all rows of one key into one partition
       .mapInArrow(final_net(...), final_schema(shape))   the net change, decoded and cast

Contract for the caller:

1. Look for TRUNCATEs first (one query on the log: kind 'T'): ``after`` is the position of the table's last one in the
   range, None if there is none. Rows at or before it are ignored, TRUNCATE rows after it are an error.
2. If any row of the partial outcome has ``leans``, some key move needs the old key's unchanged TOAST value, which is in
   another partition or was dropped. ``final_net`` then yields one row for its partition, with ``leans`` and without
   ``op``: discard the outcome, and run ``ordered_net`` on all rows of the range in one partition.
3. The range is insert-only if every final row is ``fresh``.

Values stay unparsed in the messages until ``final_net``: a partial row is a change-log row with its key and the half
of the change that it stands for. Dropping changes is safe because each task keeps, for every key, the first action (it
says whether the key had a row before the range) and everything from the last action on that holds the whole row.
Actions between these two cannot affect the outcome, whatever rows other tasks hold.

Executors need pyarrow and NumPy; the code of this package is sent with the tasks. A task holds at most ``CELLS`` values
(or ``_BYTES``) in the partial step, and one partition in the final one: choose *n* accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import DELETE_HALF, PUT_HALF, Actions
from spark_jobs.apply.net_change.carry import has_unchanged, unknown_puts
from spark_jobs.apply.net_change.multiset import net_copies
from spark_jobs.apply.net_change.rows import NetRows, all_columns, net_rows
from spark_jobs.apply.net_change.truncates import changes_after, last_truncate
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.schema.net_columns import FRESH, LEANS, NetColumns, NetField, arrow_schema
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode

Batches = Iterator[pa.RecordBatch]

# the columns that the functions read; other columns of the change log are ignored
INPUT_COLUMNS = ("commit_lsn", "ordinal", "kind", "version", "data")

# half    0: the row stands for the change's delete of the old key only, 1: for its put only
# key     text of the key's columns joined by NUL: the column to repartition by
# leans   a key move whose row needs an unchanged TOAST value of the old key
PARTIAL_SCHEMA = pa.schema(
    [
        *(CHANGE_LOG_SCHEMA.field(name) for name in INPUT_COLUMNS),
        pa.field("half", pa.int8(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field(LEANS.name, pa.bool_(), nullable=False),
    ]
)

_PARTIAL_FIELDS = {field.name: field for field in (*CHANGE_LOG_SCHEMA, *PARTIAL_SCHEMA)}
CELLS = 4_000_000
_BYTES = 64 << 20
_OUTPUT_ROWS = 50_000


def final_fields(shape: TableShape, mode: Mode = "mirror") -> tuple[NetField, ...]:
    """All columns that a net change of the table can have, then the flags that the driver asks for."""
    return (*NetColumns.all_possible(shape, mode).fields, FRESH, LEANS)


def final_schema(shape: TableShape, mode: Mode = "mirror") -> pa.Schema:
    """The Arrow schema of ``final_fields``."""
    return arrow_schema(final_fields(shape, mode))


def partial_net(
    shape: TableShape, relations: Mapping[int, RelationVersion], *, after: Position | None = None
) -> Callable[[Batches], Batches]:
    """Change-log batches of one task, in any order → PARTIAL_SCHEMA, fewer rows. Raises as ``net_change`` does."""

    def run(batches: Batches) -> Batches:
        for rows in pieces(batches, CELLS // len(shape.columns)):
            yield from in_batches(_partial(_behind(rows, shape, after), relations, shape))

    return run


def final_net(
    shape: TableShape,
    relations: Mapping[int, RelationVersion],
    *,
    truncated: bool = False,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Callable[[Batches], Batches]:
    """PARTIAL_SCHEMA batches that hold all rows of their keys → ``final_schema``."""

    def run(batches: Batches) -> Batches:
        # columns are taken by name: Spark's batches declare every column nullable, so the schemas differ
        rows = whole(batches, PARTIAL_SCHEMA)
        if pc.any(rows.column(LEANS.name)).as_py():
            yield leaning(shape)
            return
        halves = np.asarray(rows.column("half").to_numpy(), dtype=np.int8)
        ordered = OrderedChanges.of(rows, relations, shape, halves)
        yield from _final(Actions.of(ordered, halves[ordered.order]), truncated, on_unrepresentable)

    return run


def ordered_net(
    shape: TableShape,
    relations: Mapping[int, RelationVersion],
    *,
    after: Position | None = None,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Callable[[Batches], Batches]:
    """All change-log rows of the range in one partition → ``final_schema``: ``net_change`` as one task."""

    def run(batches: Batches) -> Batches:
        rows = whole(batches, CHANGE_LOG_SCHEMA)
        ordered = OrderedChanges.of(_behind(rows, shape, after), relations, shape)
        yield from _final(Actions.of(ordered), after is not None, on_unrepresentable)

    return run


def partial_copies(
    shape: TableShape,
    relations: Mapping[int, RelationVersion],
    *,
    after: Position | None = None,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Callable[[Batches], Batches]:
    """For a table without a key: change-log batches of one task, in any order → copies of rows, still to be summed."""

    def run(batches: Batches) -> Batches:
        for rows in pieces(batches, CELLS // len(shape.columns)):
            ordered = OrderedChanges.of(_behind(rows, shape, after), relations, shape)
            yield from in_batches(net_copies(ordered, on_unrepresentable=on_unrepresentable))

    return run


def _behind(rows: pa.Table, shape: TableShape, after: Position | None) -> pa.Table:
    last = last_truncate(rows, shape)
    if last is not None and (after is None or last > after):
        raise ValueError(f"a TRUNCATE of {shape.name} at {last} is later than after={after}")
    return changes_after(rows, after)


def _partial(rows: pa.Table, relations: Mapping[int, RelationVersion], shape: TableShape) -> pa.Table:
    actions = Actions.of(OrderedChanges.of(rows, relations, shape))
    unknown = unknown_to_themselves(actions)
    here = np.arange(len(actions))
    whole = here[~unknown]
    last_whole = np.full(len(actions.keys), -1, dtype=np.int64)
    last_whole[actions.codes[whole]] = whole
    keep = (here >= last_whole[actions.codes]) | (here == actions.first_of_key()[actions.codes])
    return partial_rows(rows.select(INPUT_COLUMNS), actions, here[keep], unknown)


def unknown_to_themselves(actions: Actions) -> np.ndarray:
    """Which actions are puts whose own message lacks some value."""
    unknown = np.zeros(len(actions), dtype=bool)
    for index, column in enumerate(actions.ordered.shape.columns):
        if not column.key and has_unchanged(actions, index):
            unknown |= unknown_puts(actions, index)
    return unknown


def partial_rows(rows: pa.Table, actions: Actions, kept: np.ndarray, unknown: np.ndarray) -> pa.Table:
    """The ``kept`` actions as change-log rows, with their half, their key, and whether they lean on another key."""
    source = rows.take(pa.array(actions.ordered.order[actions.slots[kept]]))
    named = dict(zip(source.column_names, source.columns, strict=True))
    named["half"] = pa.array(np.where(actions.is_put[kept], PUT_HALF, DELETE_HALF).astype(np.int8))
    named["key"] = actions.keys.take(pa.array(actions.codes[kept]))
    named[LEANS.name] = pa.array(unknown[kept] & actions.moved[kept])
    return pa.table(named).cast(pa.schema([_PARTIAL_FIELDS[name] for name in named]))


def _final(actions: Actions, truncated: bool, on_unrepresentable: OnUnrepresentable) -> Batches:
    yield from final_rows(net_rows(actions, truncated=truncated, on_unrepresentable=on_unrepresentable))


def final_rows(net: NetRows) -> Batches:
    """The net change in batches of ``final_schema``."""
    shape, mode = net.columns.shape, net.columns.mode
    rows = all_columns(net.rows, shape, mode).append_column(FRESH.name, pa.array(net.fresh))
    rows = rows.append_column(LEANS.name, pa.array(np.zeros(len(rows), dtype=bool)))
    yield from in_batches(rows.cast(final_schema(shape, mode)))


def leaning(shape: TableShape, mode: Mode = "mirror") -> pa.RecordBatch:
    """The row that a partition yields instead of an outcome: only ``ordered_net`` can compute it."""
    return pa.RecordBatch.from_pylist([{LEANS.name: True}], schema=final_schema(shape, mode))


def whole(batches: Batches, schema: pa.Schema) -> pa.Table:
    """All rows of the partition; an empty table of ``schema`` if it has none."""
    given = list(batches)
    return pa.Table.from_batches(given) if given else schema.empty_table()


def pieces(batches: Batches, most_rows: int) -> Iterator[pa.Table]:
    """The task's rows in tables of bounded size. The larger they are, the more rows of one key come together."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= most_rows or size >= _BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def in_batches(rows: pa.Table) -> Batches:
    yield from rows.to_batches(max_chunksize=_OUTPUT_ROWS)
