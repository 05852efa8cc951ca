"""Decodes the change-log rows of one table and puts them into total order; input order and versions may be mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from spark_jobs.decode.columnar import INSERT, OLD_TUPLE, Changes, decode_changes, message_bounds
from spark_jobs.decode.in_shape import in_shape
from spark_jobs.decode.line_columns import TEXT_LINE, decode_lines
from spark_jobs.decode.tuple_vectors import ABSENT, BINARY, TupleVectors, has_value
from spark_jobs.errors import DecodeError, SchemaChangeError, new_snapshot
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.schema.wire_type import Family, wire_type

_BINARY_LIMIT = (1 << 31) - 1  # bytes that one Arrow binary array can hold


@dataclass(frozen=True)
class OrderedChanges:
    """Slot *i* of ``changes`` is the change at ``position(i)``; all changes have the shape's columns.

    ``order`` maps slots to the input rows.
    """

    shape: TableShape
    order: np.ndarray
    commit_lsns: np.ndarray
    ordinals: np.ndarray
    changes: Changes

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        relations: Mapping[int, RelationVersion],
        shape: TableShape,
        halves: np.ndarray | None = None,
    ) -> OrderedChanges:
        """``rows``: the change log's rows of kinds I, U and D, all of the shape's table.

        ``halves`` orders the two halves of a change that executors have split. Raises DecodeError, and
        SchemaChangeError when a relation version does not fit the shape.
        """
        commit_lsns, ordinals = _int64(rows, "commit_lsn"), _int64(rows, "ordinal")
        ties = np.zeros(len(rows), dtype=np.int8) if halves is None else halves
        order = np.lexsort((ties, ordinals, commit_lsns))
        commit_lsns, ordinals, ties = commit_lsns[order], ordinals[order], ties[order]
        twice = (commit_lsns[1:] == commit_lsns[:-1]) & (ordinals[1:] == ordinals[:-1]) & (ties[1:] == ties[:-1])
        if twice.any():
            at = _position(commit_lsns, ordinals, int(np.argmax(twice)))
            raise DecodeError(f"the change log holds two changes of {shape.name} at {at}")
        data, bounds = message_bounds(_messages(rows, order))
        ordered = cls(shape, order, commit_lsns, ordinals, _no_changes(data, shape))
        if not len(rows):
            return ordered
        versions = _versions(rows, shape)[order]
        changes = ordered._decode(data, bounds, versions, relations)
        return cls(shape, order, commit_lsns, ordinals, changes)

    def position(self, slot: int) -> Position:
        return _position(self.commit_lsns, self.ordinals, slot)

    @property
    def has_whole_old_row(self) -> np.ndarray:
        """For each change whether its old tuple has every column of the row, so that a null in it is the row's own.

        Of a partitioned table the letter K or O does not say so. If some of its leaves are FULL and others are not, a
        value that only a FULL leaf sends does.
        """
        changes, identities = self.changes, self.shape.leaf_identities
        if not identities:
            return np.asarray(changes.old_kinds == OLD_TUPLE)
        if None not in identities:
            return np.zeros(len(changes), dtype=bool)
        known = {name for identity in identities if identity is not None for name in identity}
        if not known:  # every leaf that sends old rows is FULL
            return np.asarray(changes.old_slots >= 0)
        further = [index for index, column in enumerate(self.shape.columns) if column.name not in known]
        return changes.of_old(np.any(has_value(changes.old.kinds[further]), axis=0))

    def _position_in(self, slots: np.ndarray, row: int) -> Position:
        return self.position(int(slots[row]))

    def _decode(
        self, data: np.ndarray, bounds: np.ndarray, versions: np.ndarray, relations: Mapping[int, RelationVersion]
    ) -> Changes:
        """Decode each relation version in one go, then merge them by position."""
        parts: list[tuple[np.ndarray, Changes]] = []
        for version in np.unique(versions):
            slots = np.flatnonzero(versions == version)
            relation, places = self._relation(int(version), relations, int(slots[0]))
            locate = partial(self._position_in, slots)
            decode = decode_lines if _is_line(data, bounds, slots[0]) else decode_changes
            part = decode(data, bounds[slots], bounds[slots + 1], relation, locate)
            self._require_identity(relation, places, slots[part.kinds != INSERT])
            self._require_readable(relation, places, part, slots)
            part = in_shape(part, places, self.shape)
            data = part.data  # with what decoding has appended: the next version must append after that
            parts.append((slots, part))
        if len(parts) == 1:
            return parts[0][1]
        return _woven(parts, len(versions))

    def _relation(
        self, version: int, relations: Mapping[int, RelationVersion], slot: int
    ) -> tuple[Relation, tuple[int | None, ...]]:
        if version not in relations:
            raise DecodeError(
                f"the change log has no Relation message {version} for the change of {self.shape.name}"
                f" at {self.position(slot)}",
                hint=f"its window is damaged or was cut by retention; {new_snapshot(self.shape.name)}",
            )
        try:
            relation = read_message(relations[version].message)
        except LogicalRepError as error:
            raise DecodeError(f"the Relation message {version} of {self.shape.name} is damaged: {error}") from error
        if not isinstance(relation, Relation):
            raise DecodeError(f"what the change log holds as Relation message {version} is another message")
        if relation.relid != self.shape.relid:
            raise DecodeError(
                f"Relation message {version} is of relation {relation.relid}, {self.shape.name} is {self.shape.relid}"
            )
        places = relations[version].places
        if places is None:
            raise SchemaChangeError(
                f"the columns of {self.shape.name} changed before {self.position(slot)}",
                hint=new_snapshot(self.shape.name),
            )
        return relation, places

    def _require_identity(self, relation: Relation, places: Sequence[int | None], finding: np.ndarray) -> None:
        """Raise SchemaChangeError unless the replica identity is FULL or the key. ``finding``: the slots of changes
        that identify their row by it.

        If the identity lacks a key column, a change of that column is sent without the old key and looks like an update
        of another row. If it has more columns than the key, several rows may have shared a key, and a delete of one
        would delete them all. A table without a key needs the whole old row; that is checked where the row is read.
        """
        key = {places[index] for index in self.shape.key_indices}
        identity = {place for place, column in enumerate(relation.columns) if column.key}
        if relation.relreplident == "f" or self.shape.leaf_identities or not key or key == identity or not len(finding):
            return
        identity_names = sorted(relation.columns[place].name for place in identity)
        names = sorted(self.shape.columns[index].name for index in self.shape.key_indices)
        raise SchemaChangeError(
            f"the replica identity of {self.shape.name} is ({', '.join(identity_names)}) at"
            f" {self.position(int(finding[0]))}, and the lake knows its rows by ({', '.join(names)})",
            hint=new_snapshot(self.shape.name),
        )

    def _require_readable(
        self, relation: Relation, places: Sequence[int | None], part: Changes, slots: np.ndarray
    ) -> None:
        """Raise unless binary values can be read with the shape's types: this version's types must have the same form.
        Raises DecodeError for types that cannot be read, SchemaChangeError for types of another form."""
        holders = np.flatnonzero(part.old_slots >= 0)
        columns = {place: column for place, column in zip(places, self.shape.columns, strict=True) if place is not None}
        for vectors, changes in ((part.new, np.arange(len(part))), (part.old, holders)):
            for place in np.flatnonzero((vectors.kinds == BINARY).any(axis=1)):
                if place not in columns:  # the column was dropped since
                    continue
                wire, column = relation.columns[place], columns[int(place)]
                at = self.position(int(slots[changes[np.argmax(vectors.kinds[place] == BINARY)]]))
                known = column.binary_type
                if not known.readable or known.family is Family.NO_SEND:
                    raise DecodeError(
                        f"the change of {self.shape.name} at {at} has a value of type {known.name} in binary, in column"
                        f" {column.name}: it cannot be read without the server",
                        hint=f"set source.binary: false and {new_snapshot(self.shape.name)}",
                    )
                if wire.atttypid != column.atttypid and not wire_type(wire.atttypid).same_form(known):
                    raise SchemaChangeError(
                        f"the type of column {column.name} of {self.shape.name} changed before {at}",
                        hint=new_snapshot(self.shape.name),
                    )


def plain_columns(rows: pa.Table, describing: Sequence[str] = ("commit_time", "xid")) -> pa.Table:
    """The columns needed here, and those of ``describing`` that are there, in types that every Arrow kernel accepts:
    some readers return views."""
    data = rows.column("data")
    if data.type not in (pa.binary(), pa.large_binary()):
        data = data.cast(pa.large_binary())
    columns = {name: rows.column(name).cast(pa.int64()) for name in ("commit_lsn", "ordinal", "version")}
    described = {name: rows.column(name) for name in describing if name in rows.column_names}
    return pa.table({**columns, "kind": rows.column("kind").cast(pa.string()), "data": data, **described})


def _int64(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.int64)


def _position(commit_lsns: np.ndarray, ordinals: np.ndarray, slot: int) -> Position:
    return Position(Lsn(int(commit_lsns[slot])), int(ordinals[slot]))


def _versions(rows: pa.Table, shape: TableShape) -> np.ndarray:
    versions = rows.column("version")
    if versions.null_count:
        raise DecodeError(f"the change log holds a change of {shape.name} without its relation version")
    return np.asarray(versions.to_numpy(), dtype=np.int64)


def _messages(rows: pa.Table, order: np.ndarray) -> pa.Array:
    data = rows.column("data")
    if data.nbytes > _BINARY_LIMIT:
        data = data.cast(pa.large_binary())
    if (np.diff(order) != 1).any():
        data = data.take(pa.array(order))
    whole = data.chunk(0) if data.num_chunks == 1 else data.combine_chunks()  # which would copy a single chunk too
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole


def _is_line(data: np.ndarray, bounds: np.ndarray, slot: int) -> bool:
    """Whether it is a line of test_decoding, not a message of pgoutput."""
    return bool(bounds[slot] < bounds[slot + 1] and data[bounds[slot]] == TEXT_LINE)


def _no_changes(data: np.ndarray, shape: TableShape) -> Changes:
    none = np.zeros(0, dtype=np.uint8)
    columns = len(shape.columns)
    empty = TupleVectors.absent(columns, 0)
    return Changes(data, none, none, np.zeros(0, dtype=np.int64), empty, empty)


def _woven(parts: list[tuple[np.ndarray, Changes]], size: int) -> Changes:
    """The parts, merged in total order by their slots."""
    first, last = parts[0][1], parts[-1][1]
    kinds, old_kinds = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.uint8)
    for slots, part in parts:
        kinds[slots], old_kinds[slots] = part.kinds, part.old_kinds
    has_old = old_kinds != ABSENT
    old_slots = np.where(has_old, np.cumsum(has_old) - 1, -1)
    columns = len(first.new.kinds)
    new, old = TupleVectors.absent(columns, size), TupleVectors.absent(columns, int(has_old.sum()))
    for slots, part in parts:
        _place(part.new, new, slots)
        _place(part.old, old, old_slots[slots][part.old_kinds != ABSENT])
    return Changes(last.data, kinds, old_kinds, old_slots, new, old)


def _place(part: TupleVectors, whole: TupleVectors, slots: np.ndarray) -> None:
    whole.kinds[:, slots] = part.kinds
    whole.starts[:, slots] = part.starts
    whole.lengths[:, slots] = part.lengths
