"""Brings rows that were read at many moments to one: what the change log says of a key replaces what was read of it.

A row that nobody has changed meanwhile was read once, and is right. A changed row may have been read before or after
its change, twice, or never, as PostgreSQL moves a row that it updates. So all rows of a changed key are removed, and
the row that the log leaves of it is added. A value that no change has sent, as it is stored out of line, is that of any
row of the key that was read. If there is none, the row has to be read from the source by its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from spark_jobs.apply.net_change.net_change import NetChange
from spark_jobs.decode.threads import in_threads
from spark_jobs.schema.net_columns import OPERATION, UPSERT, old_key, value
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.writers.with_arrow.kept_values import filled, key_before, lacking

_ROW, _HELD = "row", "held"


@dataclass(frozen=True)
class CorrectedFiles:
    """``files``: those with the rows now, of which ``added`` are new. ``unknown``: the keys of rows that are in none of
    them, as values of theirs are not known."""

    files: tuple[AddAction, ...]
    added: tuple[AddAction, ...]
    unknown: pa.Table


def corrected(
    staged: StagedFiles,
    files: Sequence[AddAction],
    net: NetChange,
    *,
    doubtful: pa.Table | None,
    unknown: pa.Table | None = None,
) -> CorrectedFiles:
    """Apply one net change, which has a row for each key that was changed. ``doubtful``: the keys of rows that were
    read while these changes were made; None: all. ``unknown``: of the net changes before.

    Nothing is removed: after an error, or if the outcome is not used, the files are as they were. Raises LakeError.
    """
    change = _Change(staged, net, doubtful)
    pieces = in_threads(change.without_changed, files)
    old_rows = pa.concat_tables([piece.old_rows for piece in pieces]) if pieces else change.no_rows
    rows, without_values = change.with_kept_values(old_rows)
    if unknown is not None:
        earlier = unknown.filter(pc.invert(_are_among(unknown, change.keys)))
        without_values = pa.concat_tables([earlier, without_values])
    added = (*(file for piece in pieces for file in piece.added), *staged.write(rows.to_batches()).actions)
    return CorrectedFiles((*(file for piece in pieces for file in piece.kept), *added), added, without_values)


@dataclass(frozen=True)
class _Piece:
    """What becomes of one file: it is ``kept``, or its other rows are in those ``added``. ``old_rows``: its rows of
    keys for which a value was not sent."""

    kept: tuple[AddAction, ...]
    added: tuple[AddAction, ...]
    old_rows: pa.Table


class _Change:
    """One net change, and what it needs to know of the rows that were read."""

    def __init__(self, staged: StagedFiles, net: NetChange, doubtful: pa.Table | None) -> None:
        self._staged, self._columns, self._rows = staged, net.columns, net.rows
        self._names = [value(place) for place in range(len(staged.shape.columns))]
        self._key_names = [value(place) for place in staged.shape.key_indices]
        self.keys = net.rows.select(self._key_names)
        self._lacks = lacking(net.columns, net.rows)
        nothing = pa.array([False] * net.rows.num_rows, pa.bool_())  # also of none
        moved = reduce(pc.or_, (pc.is_valid(net.rows.column(old_key(i))) for i in net.columns.old_keys), nothing)
        self._before = pa.table(
            [key_before(net.columns, net.rows, place) for place in staged.shape.key_indices], self._key_names
        )
        # what was read of the key that a row had before may be another row, which has got that key since
        unsure = moved if doubtful is None else pc.and_(moved, _are_among(self._before, doubtful))
        self._unsure = pc.and_(self._lacks, unsure)
        self._wanted = self._before.filter(pc.and_(self._lacks, pc.invert(unsure)))

    @property
    def no_rows(self) -> pa.Table:
        return self._rows.schema.empty_table().select(self._names)

    def without_changed(self, file: AddAction) -> _Piece:
        keys = self._staged.keys(file).cast(self.keys.schema)
        if not pc.any(_are_among(keys, self.keys)).as_py():
            return _Piece((file,), (), self.no_rows)
        old_rows: list[pa.Table] = []

        def others() -> Iterator[pa.RecordBatch]:
            for batch in self._staged.batches(file):
                rows = pa.Table.from_batches([batch]).cast(self.no_rows.schema)  # Spark names elements otherwise
                of_batch = rows.select(self._key_names).cast(self.keys.schema)
                if self._wanted.num_rows:
                    old_rows.append(rows.filter(_are_among(of_batch, self._wanted)))
                yield from rows.filter(pc.invert(_are_among(of_batch, self.keys))).to_batches()

        added = self._staged.write(others()).actions
        return _Piece((), added, pa.concat_tables([self.no_rows, *old_rows], promote_options="permissive"))

    def with_kept_values(self, old_rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows that the change leaves, and the keys of those that lack a value."""
        places, unknown = self._places(old_rows)
        rows = filled(
            self._columns, self._rows, {i: old_rows.column(value(i)) for i in self._columns.unchanged}, places
        )
        upserts = pc.equal(rows.column(OPERATION), UPSERT)
        left = rows.filter(pc.and_(upserts, pc.invert(unknown))).select(self._names)
        return left, self.keys.filter(unknown)

    def _places(self, old_rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """For each row of the change the place of the row among ``old_rows`` that has its values, null without one; and
        whether it lacks a value that is not known."""
        numbered = old_rows.select(self._key_names).cast(self.keys.schema).append_column(_HELD, _numbers(old_rows))
        first = numbered.group_by(self._key_names).aggregate([(_HELD, "min")])
        before = self._before.append_column(_ROW, _numbers(self._before))
        places = before.join(first, self._key_names, join_type="left outer").sort_by(_ROW).column(f"{_HELD}_min")
        return places, pc.or_(self._unsure, pc.and_(self._lacks, pc.is_null(places)))


def _are_among(keys: pa.Table, others: pa.Table) -> pa.Array:
    """For each of ``keys`` whether it is one of ``others``; both have the same columns."""
    if keys.num_columns == 1:
        return pc.is_in(keys.column(0), others.column(0))
    numbered = keys.append_column(_ROW, _numbers(keys))
    numbers = numbered.join(others, keys.column_names, join_type="left semi").column(_ROW)
    return pc.is_in(numbered.column(_ROW), numbers)


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())
