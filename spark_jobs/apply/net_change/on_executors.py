"""The net change of a large range, in parallel: pure functions for ``DataFrame.mapInArrow``, same outcome.

::

    log.where(<one table, kinds I U D, behind its last TRUNCATE>)
       .mapInArrow(partial_net(...), PARTIAL_SCHEMA)      each task drops what its own rows make superfluous
       .repartition(n, "key")                             all rows of one key into one partition
       .mapInArrow(final_net(...), final_schema(shape))   the net change, decoded and cast

Contract for the caller:

1. TRUNCATE rows are taken out first: ``after`` is the position of the table's last one in the range, None for none
   (one query on the log: kind 'T'). Rows at or before it are ignored, TRUNCATE rows behind it are an error.
2. If any row of the partial outcome has ``leans``, a key move somewhere needs the old key's unchanged TOAST value,
   which lies in another partition or was dropped. ``final_net`` then gives one row for its partition, which has
   ``leans`` and no ``op``: throw the outcome away and run ``ordered_net`` on all rows of the range in one partition.
3. The range is insert-only if every final row is ``fresh``.

Values stay unparsed in the messages until ``final_net``: a partial row is a change-log row with its key and the half
of the change it stands for. Dropping is safe because of two rules: per key and task the first action stays (it tells
whether the key had a row before the range), and so does everything from the last one on that tells the row's whole
state; what lies between cannot show, whichever rows other tasks hold in between.

Runs on executors: needs pyarrow, NumPy and this package, nothing else. A task holds at most ``_CELLS`` values (or
``_BYTES``) in the partial step, and one partition in the final one: choose *n* accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import DELETE_HALF, PUT_HALF, Actions
from spark_jobs.apply.net_change.carry import has_unchanged, unknown_puts
from spark_jobs.apply.net_change.on_driver import changes_after, last_truncate
from spark_jobs.apply.net_change.rows import all_columns, net_rows
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.schema.net_columns import FRESH, LEANS, NetColumns, NetField, arrow_schema
from spark_jobs.schema.table_shape import TableShape

Batches = Iterator[pa.RecordBatch]

# what the functions read; further columns of the change log are ignored
INPUT_COLUMNS = ("commit_lsn", "ordinal", "kind", "version", "data")

# half    0: only this change's delete of the old key counts, 1: only its put
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

_CELLS = 4_000_000
_BYTES = 64 << 20
_OUTPUT_ROWS = 50_000


def final_fields(shape: TableShape) -> tuple[NetField, ...]:
    """All columns that a net change of the table can have, and what the driver is told of the rows."""
    return (*NetColumns.all_possible(shape).fields, FRESH, LEANS)


def final_schema(shape: TableShape) -> pa.Schema:
    """Of ``final_fields``."""
    return arrow_schema(final_fields(shape))


def partial_net(
    shape: TableShape, relations: Mapping[int, bytes], *, after: Position | None = None
) -> Callable[[Batches], Batches]:
    """Change-log batches of one task, in any order → PARTIAL_SCHEMA, fewer rows. Raises as ``net_change`` does."""

    def run(batches: Batches) -> Batches:
        for rows in _pieces(batches, _CELLS // len(shape.columns)):
            yield from _batches(_partial(_behind(rows, shape, after), relations, shape))

    return run


def final_net(
    shape: TableShape,
    relations: Mapping[int, bytes],
    *,
    truncated: bool = False,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Callable[[Batches], Batches]:
    """PARTIAL_SCHEMA batches that hold all rows of their keys → ``final_schema``."""

    def run(batches: Batches) -> Batches:
        given = list(batches)
        # by name: Spark's batches say of every column that it may be null
        rows = pa.Table.from_batches(given) if given else PARTIAL_SCHEMA.empty_table()
        if pc.any(rows.column(LEANS.name)).as_py():
            yield pa.RecordBatch.from_pylist([{LEANS.name: True}], schema=final_schema(shape))
            return
        halves = np.asarray(rows.column("half").to_numpy(), dtype=np.int8)
        ordered = OrderedChanges.of(rows, relations, shape, halves)
        yield from _final(Actions.of(ordered, halves[ordered.order]), shape, truncated, on_unrepresentable)

    return run


def ordered_net(
    shape: TableShape,
    relations: Mapping[int, bytes],
    *,
    after: Position | None = None,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Callable[[Batches], Batches]:
    """All change-log rows of the range in one partition → ``final_schema``: what ``net_change`` does, as a task."""

    def run(batches: Batches) -> Batches:
        given = list(batches)
        rows = pa.Table.from_batches(given) if given else CHANGE_LOG_SCHEMA.empty_table()
        ordered = OrderedChanges.of(_behind(rows, shape, after), relations, shape)
        yield from _final(Actions.of(ordered), shape, after is not None, on_unrepresentable)

    return run


def _behind(rows: pa.Table, shape: TableShape, after: Position | None) -> pa.Table:
    last = last_truncate(rows, shape)
    if last is not None and (after is None or last > after):
        raise ValueError(f"a TRUNCATE of {shape.name} at {last} lies behind after={after}")
    return changes_after(rows, after)


def _partial(rows: pa.Table, relations: Mapping[int, bytes], shape: TableShape) -> pa.Table:
    ordered = OrderedChanges.of(rows, relations, shape)
    actions = Actions.of(ordered)
    unknown = np.zeros(len(actions), dtype=bool)
    for index, column in enumerate(shape.columns):
        if not column.key and has_unchanged(actions, index):
            unknown |= unknown_puts(actions, index)
    here = np.arange(len(actions))
    whole = here[~unknown]
    last_whole = np.full(len(actions.keys), -1, dtype=np.int64)
    last_whole[actions.codes[whole]] = whole
    keep = (here >= last_whole[actions.codes]) | (here == actions.first_of_key()[actions.codes])
    kept = here[keep]
    source = rows.select(INPUT_COLUMNS).take(pa.array(ordered.order[actions.slots[kept]]))
    half = np.where(actions.is_put[kept], PUT_HALF, DELETE_HALF).astype(np.int8)
    leans = unknown[kept] & actions.moved[kept]
    arrays = [*source.columns, pa.array(half), actions.keys.take(pa.array(actions.codes[kept])), pa.array(leans)]
    return pa.Table.from_arrays(arrays, schema=PARTIAL_SCHEMA)


def _final(actions: Actions, shape: TableShape, truncated: bool, on_unrepresentable: OnUnrepresentable) -> Batches:
    net = net_rows(actions, truncated=truncated, on_unrepresentable=on_unrepresentable)
    rows = all_columns(net.rows, shape).append_column(FRESH.name, pa.array(net.fresh))
    rows = rows.append_column(LEANS.name, pa.array(np.zeros(len(rows), dtype=bool)))
    yield from _batches(rows.cast(final_schema(shape)))


def _pieces(batches: Batches, most_rows: int) -> Iterator[pa.Table]:
    """The task's rows in tables of bounded size: the larger, the more rows of one key meet."""
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


def _batches(rows: pa.Table) -> Batches:
    yield from rows.to_batches(max_chunksize=_OUTPUT_ROWS)
