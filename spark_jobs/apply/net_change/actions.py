"""Changes → actions. An action is one put or delete of one key, in total order, with the key as a small integer.

An update that moves a row to another key is two actions: delete the old key, then put the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.binary.cast import text_of_binary
from spark_jobs.decode.close_integers import CloseIntegers
from spark_jobs.decode.columnar import DELETE, INSERT, UPDATE
from spark_jobs.decode.gather import gather
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.tuple_vectors import BINARY, TEXT, UNCHANGED
from spark_jobs.decode.values import Fitted, as_printed_since_15
from spark_jobs.errors import NeedsSnapshotError, new_snapshot
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.schema.wire_type import Family

WHOLE, DELETE_HALF, PUT_HALF = -1, 0, 1  # the part of a change that a row stands for

Cast = Callable[[pa.Array], Fitted]

_FLOATS = (LakeKind.FLOAT, LakeKind.DOUBLE)
_INTEGERS = (Family.INT2, Family.INT4, Family.INT8)


@dataclass(frozen=True)
class Spans:
    """Where values lie in the message buffer. ``binary``: which of them are in binary format; None if none is."""

    starts: np.ndarray
    lengths: np.ndarray
    valid: np.ndarray
    binary: np.ndarray | None = None

    @classmethod
    def of(cls, starts: np.ndarray, lengths: np.ndarray, kinds: np.ndarray) -> Spans:
        """``kinds``: the tuples' column kinds. Only text and binary are values."""
        text = kinds == TEXT
        if text.all():
            return cls(starts, lengths, text)
        binary = kinds == BINARY
        return cls(starts, lengths, text | binary, binary if binary.any() else None)

    def cast(self, data: np.ndarray, in_text: Cast, in_binary: Cast, to: pa.DataType) -> Fitted:
        """The values as ``to``: those in text cast by ``in_text``, those in binary by ``in_binary``."""
        if self.binary is None:
            parts = self._each(data, self.valid, in_text)
        else:
            parts = self._each(data, self.binary, in_binary)
            is_text = self.valid & ~self.binary
            if is_text.any():
                parts = list(map(_either, parts, self._each(data, is_text, in_text)))
        return Fitted.joined(parts, to)

    def _each(self, data: np.ndarray, valid: np.ndarray, cast: Cast) -> list[Fitted]:
        return [cast(chunk) for chunk in gather(data, self.starts, self.lengths, valid).chunks]


def _either(first: Fitted, second: Fitted) -> Fitted:
    """The values of both, of which each row has at most one."""
    texts = [each.misfits for each in (first, second) if each.misfits is not None]
    return Fitted(pc.coalesce(first.values, second.values), pc.coalesce(*texts) if texts else None)


@dataclass(frozen=True)
class Actions:
    """Vectors with one element per action.

    ``slots``: the change that the action belongs to. ``codes``: its key. ``start_codes``: the key that its row had
    before, which differs for the put of a key move (``moved``). ``fresh``: a put of a key that had no row right before
    it (an insert or a move).
    """

    ordered: OrderedChanges
    slots: np.ndarray
    is_put: np.ndarray
    moved: np.ndarray
    fresh: np.ndarray
    codes: np.ndarray
    start_codes: np.ndarray
    split: bool  # some changes may be present with only one of their halves
    keys: pa.Array  # by code: an integer, or the key's text, of several columns joined by NUL, which no text can hold

    @classmethod
    def of(cls, ordered: OrderedChanges, halves: np.ndarray | None = None) -> Actions:
        """``halves``: WHOLE, DELETE_HALF or PUT_HALF for each change. Raises NeedsSnapshotError if a key has no
        value."""
        changes = ordered.changes
        with_new = np.flatnonzero(changes.kinds != DELETE)
        with_old = np.flatnonzero(changes.old_slots >= 0)
        new_codes, old_codes, keys = _encoded(ordered, with_new, with_old)
        is_update = changes.kinds == UPDATE
        moved = is_update & (old_codes >= 0) & (old_codes != new_codes)
        deletes, puts = moved | (changes.kinds == DELETE), changes.kinds != DELETE
        if halves is not None:
            deletes &= halves != PUT_HALF
            puts &= halves != DELETE_HALF
        slots = np.repeat(np.arange(len(changes)), deletes.astype(np.int8) + puts)
        # a change's delete comes before its put
        is_put = np.ones(len(slots), dtype=bool)
        first = np.cumsum(deletes.astype(np.int64) + puts) - (deletes.astype(np.int64) + puts)
        is_put[first[deletes]] = False
        put_moved = is_put & moved[slots]
        codes = np.where(is_put, new_codes[slots], old_codes[slots])
        return cls(
            ordered,
            slots,
            is_put,
            moved=put_moved,
            fresh=put_moved | (changes.kinds[slots] == INSERT),
            codes=codes,
            start_codes=np.where(put_moved, old_codes[slots], codes),
            split=halves is not None,
            keys=keys,
        )

    def __len__(self) -> int:
        return len(self.slots)

    def last_of_key(self) -> np.ndarray:
        """For each code its last action, -1 if it has none."""
        last = np.zeros(len(self.keys), dtype=np.int64) - 1
        last[self.codes] = np.arange(len(self))  # NumPy assigns in order: the last one wins
        return last

    def first_of_key(self) -> np.ndarray:
        """For each code its first action, -1 if it has none."""
        first = np.zeros(len(self.keys), dtype=np.int64) - 1
        first[self.codes[::-1]] = np.arange(len(self))[::-1]
        return first

    def previous_of_key(self) -> np.ndarray:
        """For each action the one before it with the same key, -1 if there is none."""
        by_key = np.argsort(self.codes, kind="stable")
        previous = np.full(len(self), -1, dtype=np.int64)
        same = self.codes[by_key[1:]] == self.codes[by_key[:-1]]
        previous[by_key[1:][same]] = by_key[:-1][same]
        return previous

    def key_texts(self, actions: np.ndarray) -> pa.Array:
        keys = self.keys.take(pa.array(self.codes[actions]))
        return keys if pa.types.is_binary(keys.type) else keys.cast(pa.string()).cast(pa.binary())

    def key_spans(self, column: int, actions: np.ndarray, from_old: np.ndarray) -> Spans:
        """A key column's values for these actions: from the old key where ``from_old``, else from the new one."""
        slots = self.slots[actions]
        return _key_spans(self.ordered, column, slots, from_old)


def _key_spans(ordered: OrderedChanges, column: int, slots: np.ndarray, from_old: np.ndarray) -> Spans:
    changes = ordered.changes
    # an unchanged key column stored out of line is missing in the new tuple, but always sent with the old key
    from_old = from_old | ((changes.new.kinds[column, slots] == UNCHANGED) & (changes.old_slots[slots] >= 0))
    spans = Spans.of(*changes.spans(column, slots, from_old))
    if not spans.valid.all():
        at_slot = int(slots[np.argmin(spans.valid)])
        raise NeedsSnapshotError(
            f"the change of {ordered.shape.name} at {ordered.position(at_slot)} has no value in key column"
            f" {ordered.shape.columns[column].name}",
            hint=f"if its replica identity was changed, {new_snapshot(ordered.shape.name)}",
        )
    return spans


def _encoded(
    ordered: OrderedChanges, with_new: np.ndarray, with_old: np.ndarray
) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """For each change the key codes of its new and of its old side, -1 where it has none; and the keys by code."""
    columns = [
        [
            *_key_text(ordered, column, with_new, old=False).chunks,
            *_key_text(ordered, column, with_old, old=True).chunks,
        ]
        for column in ordered.shape.key_indices
    ]
    joined = [
        parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"\0")
        for parts in zip(*columns, strict=True)
    ]
    codes, keys = _numbered(pa.chunked_array(joined, type=pa.binary()), ordered.shape)
    size = len(ordered.changes)
    new_codes, old_codes = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    new_codes[with_new], old_codes[with_old] = codes[: len(with_new)], codes[len(with_new) :]
    return new_codes, old_codes, keys


def _numbered(texts: pa.ChunkedArray, shape: TableShape) -> tuple[np.ndarray, pa.Array]:
    """For each of the keys its code, and the distinct ones by code. Integers are numbered as such, in a fifth of the
    time that their texts take."""
    families = [shape.columns[index].binary_type.family for index in shape.key_indices]
    if len(families) == 1 and families[0] in _INTEGERS:
        with suppress(pa.ArrowInvalid):  # where its value is cast, the error says what it is
            distinct, codes = _ranked(texts.cast(pa.string()).cast(pa.int64()).to_numpy())
            return codes, pa.array(distinct)
    encoded = texts.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # no change at all
        encoded = pa.array([], pa.binary()).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _ranked(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers in ascending order, and for each number its place among them."""
    close = CloseIntegers.of(numbers)
    if close is None:
        return np.unique(numbers, return_inverse=True)
    distinct, places = close.ranked()
    return distinct, places[numbers - close.least].astype(np.int64)


def _key_text(ordered: OrderedChanges, column: int, slots: np.ndarray, *, old: bool) -> pa.ChunkedArray:
    spans = _key_spans(ordered, column, slots, np.full(len(slots), old))
    lake_column = ordered.shape.columns[column]

    def printed(values: pa.Array) -> Fitted:
        return Fitted(as_printed_since_15(values, lake_column.binary_type))

    def rendered(values: pa.Array) -> Fitted:
        name, table = lake_column.name, str(ordered.shape.name)
        return Fitted(text_of_binary(values, lake_column.binary_type, name=name, table=table))

    text = spans.cast(ordered.changes.data, printed, rendered, pa.binary()).values
    if lake_column.lake_type.kind in _FLOATS and len(text):
        # 0 and -0 are the same key to PostgreSQL and to MERGE
        text = pc.if_else(pc.equal(text, b"-0"), pa.scalar(b"0", pa.binary()), text)
    return text
