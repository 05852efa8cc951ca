"""A batch of ``test_decoding``'s lines, with vectorised reads of what capture needs.

Each kind of line begins with a different letter. What follows a table's name is left to the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.capture.message_batch import CHANGES, MessageBatch, of_kinds
from spark_jobs.decode.datetimes import parse_timestamps
from spark_jobs.decode.text_column import TextColumn
from spark_jobs.logicalrep.errors import FieldError
from spark_jobs.logicalrep.test_decoding.lines import TableName
from spark_jobs.logicalrep.test_decoding.read_line import read_line, read_table_header

Ints = npt.NDArray[np.int64]

BEGIN, COMMIT, TABLE, MESSAGE, PREPARED = b"B", b"C", b"t", b"m", b"P"
STREAMED = b"ocaps"
_FLAG_AT = len("message: transactional: ")
_COMMIT_PREPARED_AT = len("COMMIT ")
_BEGIN_LINE = r"^BEGIN (?P<xid>\d+)$"
_COMMIT_LINE = r"^COMMIT (?P<xid>\d+) \(at (?P<time>.+)\)$"


@dataclass(frozen=True)
class Ends:
    """The columns of COMMIT lines: ``time`` in microseconds since 1970."""

    xid: Ints
    time: Ints


class LineBatch:
    """``lsn`` is the LSN that came with each line. ``kind`` is its first letter; P for every two-phase commit line."""

    def __init__(self, lsn: Ints, lines: pa.Array) -> None:
        wide = lines.type in (pa.large_string(), pa.large_binary())
        messages = MessageBatch.of(lines.view(pa.large_binary() if wide else pa.binary()))
        self.lsn = lsn
        self.lines = messages.messages
        self.length = messages.length
        self._buffer, self._start = messages.buffer, messages.start
        self.kind = messages.kind.copy()
        commits = self.where(COMMIT)
        self.kind[commits[self._byte(commits, _COMMIT_PREPARED_AT) == ord("P")]] = ord(PREPARED)
        self.kind[self.where(b"R")] = ord(PREPARED)

    def __len__(self) -> int:
        return len(self.kind)

    def where(self, kinds: bytes) -> Ints:
        """The indices of the lines of these kinds."""
        return np.flatnonzero(of_kinds(self.kind, kinds))

    def line(self, at: int) -> bytes:
        return bytes(self.lines[at].as_py())

    @property
    def loose_messages(self) -> npt.NDArray[np.bool_]:
        """For each line, whether it is a non-transactional message, which has its own LSN."""
        at = self.where(MESSAGE)
        loose = np.zeros(len(self), np.bool_)
        loose[at[self._byte(at, _FLAG_AT) == ord("0")]] = True
        return loose

    def begin_xids(self, at: Ints) -> Ints:
        """The xids of BEGIN lines. Raises LogicalRepError."""
        return self._xids(self._fields(at, _BEGIN_LINE))

    def ends(self, at: Ints) -> Ends:
        """Xid and time of COMMIT lines. Raises LogicalRepError."""
        fields = self._fields(at, _COMMIT_LINE)
        try:
            times, outside = parse_timestamps(TextColumn.of(fields.field("time")), with_zone=True)
        except (ValueError, pa.ArrowInvalid):
            raise FieldError("a commit time is not a time") from None
        if outside is not None and outside.any():
            raise FieldError("a commit time is beyond the year 9999")
        return Ends(self._xids(fields), times.cast(pa.int64()).to_numpy())

    def tables(self) -> tuple[Ints, list[tuple[TableName, ...]], npt.NDArray[np.uint8]]:
        """(index, names, letter): for each line an index into ``names``, -1 if it begins with no table name; the
        distinct table names that lines begin with (a TRUNCATE has several); and for each line the letter I, U, D or T.

        Python runs once per distinct beginning. Raises LogicalRepError.
        """
        code, names = np.full(len(self), -1, np.int64), list[tuple[TableName, ...]]()
        letter = np.zeros(len(self), np.uint8)
        left = self.where(TABLE)
        while len(left):
            first = self.line(int(left[0]))
            name, size = read_table_header(first)
            same = _mask(pc.starts_with(self.lines.take(pa.array(left)), first[:size]))
            rows = left[same]
            code[rows] = len(names)
            letter[rows] = self._byte(rows, size + 1)
            names.append(name)
            left = left[~same]
        wrong = np.flatnonzero((code >= 0) & ~of_kinds(letter, CHANGES))
        if len(wrong):
            raise _precise(self.line(int(wrong[0])))
        return code, names, letter

    def _fields(self, at: Ints, pattern: str) -> pa.StructArray:
        fields = pc.extract_regex(self.lines.take(pa.array(at)).cast(pa.string()), pattern)
        if fields.null_count:
            raise _precise(self.line(int(at[int(np.argmin(fields.is_valid().to_numpy(zero_copy_only=False)))])))
        return fields

    @staticmethod
    def _xids(fields: pa.StructArray) -> Ints:
        try:
            return np.asarray(fields.field("xid").cast(pa.uint32()).to_numpy().astype(np.int64))
        except pa.ArrowInvalid:
            raise FieldError("xid: more than 32 bits") from None

    def _byte(self, at: Ints, offset: int) -> npt.NDArray[np.uint8]:
        """The byte at ``offset`` of these lines, 0 where they are shorter."""
        inside = self.length[at] > offset
        place = np.where(inside, self._start[at] + offset, 0)
        return np.where(inside, self._buffer[place] if len(self._buffer) else 0, 0).astype(np.uint8)


def _precise(line: bytes) -> FieldError:
    """The error that ``read_line`` raises for the line. If it raises none, the line lacks a field that our options ask
    for."""
    try:
        read_line(line)
    except ValueError as error:
        return FieldError(str(error))
    return FieldError("a line lacks the xid or the time, which the plugin's options ask for")


def _mask(condition: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(condition.to_numpy(zero_copy_only=False))
