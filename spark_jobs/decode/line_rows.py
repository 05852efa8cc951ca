"""Lines that are read in lockstep: the current position in each, and which of them still fit what is expected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_jobs.decode.line_text import LineText, all_bytes_in, without_doubled_quotes
from spark_jobs.decode.tuple_vectors import NULL, TEXT, UNCHANGED
from spark_jobs.logicalrep.test_decoding.lines import Form

_NULL_WORD, _UNCHANGED_WORD = b"null", b"unchanged-toast-datum"
_NUMBER_BEGINS = np.isin(np.arange(256), np.frombuffer(b"-0123456789NI", dtype=np.uint8))
_NUMBER_ENDS = np.isin(np.arange(256), np.frombuffer(b"0123456789Ny", dtype=np.uint8))
_QUOTE, _LETTER_B = ord("'"), ord("B")

Values = tuple[np.ndarray, np.ndarray, np.ndarray]  # kinds, starts, lengths
AppendBytes = Callable[[np.ndarray], int]


class LineRows:
    """``slots`` are the lines' places in the chunk. A line that does not fit is dropped."""

    def __init__(self, text: LineText, at: np.ndarray, end: np.ndarray, slots: np.ndarray) -> None:
        self.slots = slots
        self.read = np.zeros(0, dtype=np.int64)
        self._text = text
        self._at = at
        self._end = end

    def __len__(self) -> int:
        return len(self.slots)

    def keep(self, fits: np.ndarray) -> None:
        if not fits.all():
            self.slots, self._at, self._end = self.slots[fits], self._at[fits], self._end[fits]

    def skip(self, word: bytes) -> None:
        """Move past ``word``; lines that do not have it here do not fit."""
        self.keep(self._text.matches(self._at, self._end, word))
        self._at = self._at + len(word)

    def skip_if(self, word: bytes) -> np.ndarray:
        """Move past ``word`` in the lines that have it here; returns a mask of these."""
        matches = self._text.matches(self._at, self._end, word)
        self._at = self._at + (len(word) if matches.all() else np.where(matches, len(word), 0))
        return matches

    def split(self, word: bytes) -> LineRows:
        """Split off and return the lines that have ``word`` here, moved past it."""
        has_word = self._text.matches(self._at, self._end, word)
        part = LineRows(self._text, self._at[has_word] + len(word), self._end[has_word], self.slots[has_word])
        self.keep(~has_word)
        return part

    def join(self, other: LineRows) -> None:
        """Add the other's lines, in order of their slots."""
        slots = np.concatenate([self.slots, other.slots])
        order = np.argsort(slots, kind="stable")
        self.slots = slots[order]
        self._at = np.concatenate([self._at, other._at])[order]
        self._end = np.concatenate([self._end, other._end])[order]

    def done(self, part: LineRows) -> None:
        self.read = np.concatenate([self.read, part.slots])

    def at_end(self) -> None:
        """Lines that do not end here do not fit."""
        self.keep(self._at == self._end)

    def value(self, form: Form, is_there: np.ndarray, append: AppendBytes) -> Values:
        """Read a value from each line in which one ``is_there``; it is null in the others. Lines whose value has
        another form do not fit.

        ``append`` appends bytes that do not stand in the buffer as they are, and returns their position.
        """
        kinds = np.full(len(self), NULL, dtype=np.uint8)
        starts = np.zeros(len(self), dtype=np.int64)
        lengths = np.zeros(len(self), dtype=np.int64)
        fits = np.ones(len(self), dtype=bool)
        reader = {Form.QUOTED: self._quoted, Form.NUMBER: self._number, Form.BOOLEAN: self._boolean}
        rows: slice | np.ndarray = slice(None) if is_there.all() else np.flatnonzero(is_there)
        at, end = self._at[rows], self._end[rows]
        if len(at):
            read, kinds[rows], starts[rows], lengths[rows], after = reader.get(form, self._bits)(at, end, append)
            fits[rows] = read
            moved = self._at.copy()
            moved[rows] = after
            self._at = moved
        self.keep(fits)
        return kinds[fits], starts[fits], lengths[fits]

    def _word(self, at: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each word its end, its kind (NULL, UNCHANGED, or TEXT for anything else) and its length."""
        after = self._text.word_end(at, end)
        size = after - at
        kinds = np.full(len(at), TEXT, dtype=np.uint8)
        for word, kind in ((_NULL_WORD, NULL), (_UNCHANGED_WORD, UNCHANGED)):
            rows = np.flatnonzero(size == len(word))
            kinds[rows[self._text.matches(at[rows], end[rows], word)]] = kind
        return after, kinds, size

    def _number(self, at: np.ndarray, end: np.ndarray, _: AppendBytes) -> tuple[np.ndarray, ...]:
        after, kinds, size = self._word(at, end)
        first, last = self._text.byte(at, after), self._text.byte(after - 1, after)
        fits = (kinds != TEXT) | ((size > 0) & _NUMBER_BEGINS[first] & _NUMBER_ENDS[last])
        return fits, kinds, at, np.where(kinds == TEXT, size, 0), after

    def _boolean(self, at: np.ndarray, end: np.ndarray, _: AppendBytes) -> tuple[np.ndarray, ...]:
        """The value is the first letter of true or false: the text that ``boolout`` writes."""
        after, kinds, size = self._word(at, end)
        true = (size == 4) & self._text.matches(at, end, b"true")
        false = (size == 5) & self._text.matches(at, end, b"false")
        return (kinds != TEXT) | true | false, kinds, at, (kinds == TEXT).astype(np.int64), after

    def _bits(self, at: np.ndarray, end: np.ndarray, _: AppendBytes) -> tuple[np.ndarray, ...]:
        after, kinds, size = self._word(at, end)
        is_text = kinds == TEXT
        fits = ~is_text | (
            (size >= 3)
            & (self._text.byte(at, after) == _LETTER_B)
            & (self._text.byte(at + 1, after) == _QUOTE)
            & (self._text.byte(after - 1, after) == _QUOTE)
        )
        lengths = np.where(is_text & fits, size - 3, 0)
        fits &= all_bytes_in(self._text, at + 2, lengths, b"01")
        return fits, kinds, at + 2, lengths, after

    def _quoted(self, at: np.ndarray, end: np.ndarray, append: AppendBytes) -> tuple[np.ndarray, ...]:
        opened = self._text.byte(at, end) == _QUOTE
        if opened.all():
            return self._between_quotes(at, end, append)
        after, kinds, _ = self._word(at, end)
        fits, starts, lengths = kinds != TEXT, at.copy(), np.zeros(len(at), dtype=np.int64)
        rows = np.flatnonzero(opened)
        if len(rows):
            fits[rows], kinds[rows], starts[rows], lengths[rows], after[rows] = self._between_quotes(
                at[rows], end[rows], append
            )
        return fits, kinds, starts, lengths, after

    def _between_quotes(self, at: np.ndarray, end: np.ndarray, append: AppendBytes) -> tuple[np.ndarray, ...]:
        values = self._text.quoted(at, end)
        starts, lengths = values.begin, values.end - values.begin
        rows = np.flatnonzero(values.closed & (values.stop > values.first))
        if len(rows):
            data, begin, size = without_doubled_quotes(self._text, values, rows)
            starts, lengths = starts.copy(), lengths.copy()
            starts[rows], lengths[rows] = append(data) + begin, size
        return values.closed, np.full(len(at), TEXT, dtype=np.uint8), starts, lengths, values.end + 1
