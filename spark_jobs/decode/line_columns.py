"""The fast decoder of ``test_decoding``'s row lines: turns lines of one relation version into ``columnar``'s vectors.

All lines of one table are read in lockstep, column by column: the literal before each value is compared, then the
value's end is looked up. It must equal ``read_row`` (``logicalrep.test_decoding.changes``) on every input: a line that
does not clearly fit a template is read by ``read_row``, for its change or for the precise error.

A value with doubled quotes is appended to the buffer in its plain form, so ``Changes.data`` may be longer than the
input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from spark_jobs.decode.columnar import DELETE, INSERT, OLD_KEY, OLD_TUPLE, UPDATE, Changes, Locate
from spark_jobs.decode.line_rows import LineRows
from spark_jobs.decode.line_template import LineTemplate, template_of
from spark_jobs.decode.line_text import LineText
from spark_jobs.decode.tuple_vectors import ABSENT, NULL, TEXT, UNCHANGED, TupleVectors
from spark_jobs.errors import DecodeError, SchemaChangeError, new_snapshot
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Change, Delete, Insert, TupleData
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.logicalrep.test_decoding.changes import IDENTITY_FULL, TableAlteredError, read_row
from spark_jobs.qualified_name import QualifiedName

TEXT_LINE = ord("t")  # the first byte of every line of a table, and of no message of pgoutput

LINES_AT_ONCE = 32_768  # decoded in lockstep
_OPERATIONS = ((b" INSERT:", INSERT), (b" UPDATE:", UPDATE), (b" DELETE:", DELETE))
_OLD_KEY, _NEW_TUPLE = b" old-key:", b" new-tuple:"


def decode_lines(
    data: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    relation: Relation,
    locate: Locate,
    *,
    at_once: int = LINES_AT_ONCE,
) -> Changes:
    """Decode the lines ``data[begins[i]:ends[i]]``, all of ``relation``, ``at_once`` in lockstep.

    ``locate`` returns the position of line *i*; it is called only for an error. Raises DecodeError, and
    SchemaChangeError when a line's columns are not the relation's.
    """
    decoder = _Decoder(data, relation)
    chunks = [
        decoder.chunk(begins[low : low + at_once], ends[low : low + at_once], partial(_located, locate, low))
        for low in range(0, len(begins), at_once)
    ]
    return decoder.changes(chunks)


def _located(locate: Locate, low: int, row: int) -> Position:
    return locate(low + row)


class _Chunk:
    """One decoded chunk, with a slot per line in each vector. ``old_kinds`` is ABSENT where a line has no old row."""

    def __init__(self, columns: int, lines: int) -> None:
        self.kinds = np.zeros(lines, dtype=np.uint8)
        self.old_kinds = np.full(lines, ABSENT, dtype=np.uint8)
        self.new = TupleVectors.absent(columns, lines)
        self.old = TupleVectors.absent(columns, lines)


class _Decoder:
    """The templates learnt so far, and the values to be appended to the buffer."""

    def __init__(self, data: np.ndarray, relation: Relation) -> None:
        self._data = data
        self._relation = relation
        self._templates: list[LineTemplate] = []
        self._extra: list[np.ndarray] = []
        self._size = len(data)
        self._old_kind = OLD_TUPLE if relation.relreplident == IDENTITY_FULL else OLD_KEY
        self._key = np.array([column.key for column in relation.columns], dtype=bool)

    def changes(self, chunks: Sequence[_Chunk]) -> Changes:
        """The chunks, concatenated."""
        columns = len(self._relation.columns)
        chunks = chunks or [_Chunk(columns, 0)]
        old_kinds = np.concatenate([chunk.old_kinds for chunk in chunks])
        has_old = old_kinds != ABSENT
        return Changes(
            data=np.concatenate([self._data, *self._extra]) if self._extra else self._data,
            kinds=np.concatenate([chunk.kinds for chunk in chunks]),
            old_kinds=old_kinds,
            old_slots=np.where(has_old, np.cumsum(has_old) - 1, -1),
            new=_joined([chunk.new for chunk in chunks], slice(None)),
            old=_joined([chunk.old for chunk in chunks], has_old),
        )

    def chunk(self, begins: np.ndarray, ends: np.ndarray, locate: Locate) -> _Chunk:
        text = LineText(self._data, int(begins.min()), int(ends.max()))
        chunk = _Chunk(len(self._relation.columns), len(begins))
        pending = np.arange(len(begins))
        learnt: Sequence[LineTemplate] = self._templates
        while len(pending):
            for template in learnt:
                pending = self._by_template(text, template, begins, ends, pending, chunk)
            learnt = ()
            while len(pending) and not learnt:
                row = int(pending[0])
                line = self._data[begins[row] : ends[row]].tobytes()
                change = self._read(line, row, locate)
                learnt = self._learn(line)
                if not learnt:
                    self._place(change, row, chunk)
                    pending = pending[1:]
        return chunk

    def _by_template(
        self,
        text: LineText,
        template: LineTemplate,
        begins: np.ndarray,
        ends: np.ndarray,
        pending: np.ndarray,
        chunk: _Chunk,
    ) -> np.ndarray:
        """Read the lines that fit the template; returns the rows still to be read."""
        rows = LineRows(text, begins[pending], ends[pending], pending)
        rows.skip(template.header)
        for word, kind in _OPERATIONS:
            of_kind = rows.split(word)
            if not len(of_kind):
                continue
            read = of_kind if kind == INSERT else self._old_rows(of_kind, template, kind, chunk)
            if kind != DELETE:
                self._tuple(read, template, chunk.new, keep_nulls=True)
            read.at_end()
            self._require_kept(read, kind, chunk)
            chunk.kinds[read.slots] = kind
            rows.done(read)
        return pending if not len(rows.read) else np.setdiff1d(pending, rows.read, assume_unique=True)

    def _old_rows(self, rows: LineRows, template: LineTemplate, kind: int, chunk: _Chunk) -> LineRows:
        """Read the old rows; every DELETE has one, an UPDATE only with ``old-key:``. Returns the lines that fit."""
        chunk.old_kinds[rows.slots] = ABSENT
        old = rows if kind == DELETE else rows.split(_OLD_KEY)
        if not len(old):
            return rows
        chunk.old_kinds[old.slots] = self._old_kind
        self._tuple(old, template, chunk.old, keep_nulls=False)
        if kind == UPDATE:
            old.skip(_NEW_TUPLE)
            rows.join(old)
            return rows
        return old

    def _tuple(self, rows: LineRows, template: LineTemplate, into: TupleVectors, *, keep_nulls: bool) -> None:
        """Read one row of values from each line. New rows hold every column. Old rows leave out nulls, and unless the
        replica identity is FULL, only their key columns are read."""
        only_key = not keep_nulls and self._old_kind == OLD_KEY
        if keep_nulls and not {column.index for column in template.columns}.issuperset(range(len(self._key))):
            rows.keep(np.zeros(len(rows), dtype=bool))
        into.kinds[:, rows.slots] = NULL
        into.lengths[:, rows.slots] = 0
        for column in template.columns:
            is_there = rows.skip_if(column.literal)
            if keep_nulls or (only_key and column.index >= 0 and self._key[column.index]):
                rows.keep(is_there)
                is_there = is_there[is_there]
            is_read = column.index >= 0 and not (only_key and not self._key[column.index])
            kinds, starts, lengths = rows.value(column.form, is_there, self._unescaped)
            if is_read:
                into.kinds[column.index, rows.slots] = kinds
                into.starts[column.index, rows.slots] = starts
                into.lengths[column.index, rows.slots] = lengths
        if only_key and not {column.index for column in template.columns}.issuperset(np.flatnonzero(self._key)):
            rows.keep(np.zeros(len(rows), dtype=bool))

    def _unescaped(self, data: np.ndarray) -> int:
        """Append these bytes to the buffer; returns their position."""
        start = self._size
        self._extra.append(data)
        self._size += len(data)
        return start

    def _require_kept(self, rows: LineRows, kind: int, chunk: _Chunk) -> None:
        if kind != UPDATE or self._old_kind != OLD_TUPLE:
            return
        has_old = chunk.old_kinds[rows.slots] != ABSENT
        missing = (chunk.new.kinds[:, rows.slots] == UNCHANGED) & (chunk.old.kinds[:, rows.slots] == NULL)
        rows.keep(~(missing.any(axis=0) & has_old))

    def _read(self, line: bytes, row: int, locate: Locate) -> Change:
        table = QualifiedName(self._relation.nspname, self._relation.relname)
        try:
            return read_row(line, self._relation)
        except TableAlteredError as error:
            raise SchemaChangeError(
                f"the columns or the replica identity of {table} changed around {locate(row)}: {error}",
                hint=f"test_decoding does not say how; {new_snapshot(table)}",
            ) from None
        except LogicalRepError as error:
            raise DecodeError(
                f"change at {locate(row)} of {table} is not understood: {error}",
                hint="the change log keeps it unparsed; report it with the server's version",
            ) from None

    def _learn(self, line: bytes) -> Sequence[LineTemplate]:
        """Learn from this line: returns the template that is new or has grown, or nothing."""
        template = template_of(line, self._relation)
        for place, known in enumerate(self._templates):
            merged = known.merged(template)
            if merged is not None:
                self._templates[place] = merged
                return () if merged == known else (merged,)
        self._templates.append(template)
        return (template,)

    def _place(self, change: Change, row: int, chunk: _Chunk) -> None:
        """Store a change that ``read_row`` has returned."""
        old = None if isinstance(change, Insert) else change.old_key or change.old_tuple
        chunk.kinds[row] = ord(type(change).__name__[0])
        chunk.old_kinds[row] = ABSENT if old is None else self._old_kind
        for values, vectors in ((old, chunk.old), (None if isinstance(change, Delete) else change.new, chunk.new)):
            self._place_tuple(values, vectors, row)

    def _place_tuple(self, values: TupleData | None, vectors: TupleVectors, row: int) -> None:
        for index in range(len(self._key)):
            value = values[index] if values is not None else None
            data = np.frombuffer(value if isinstance(value, bytes) else b"", dtype=np.uint8)
            absent_or_null = ABSENT if values is None else NULL
            kind = UNCHANGED if value is UNCHANGED_TOAST else TEXT if isinstance(value, bytes) else absent_or_null
            vectors.kinds[index, row] = kind
            vectors.starts[index, row] = self._unescaped(data)
            vectors.lengths[index, row] = len(data)


def _joined(parts: Sequence[TupleVectors], where: slice | np.ndarray) -> TupleVectors:
    return TupleVectors(
        np.concatenate([part.kinds for part in parts], axis=1)[:, where],
        np.concatenate([part.starts for part in parts], axis=1)[:, where],
        np.concatenate([part.lengths for part in parts], axis=1)[:, where],
    )
