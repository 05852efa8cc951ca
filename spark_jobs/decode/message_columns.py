"""Turns logical messages in the change log into the columns of the messages table, a batch at a time.

pgoutput's Message is read by Arrow and NumPy, without Python per message. When a check fails, the messages go through
``read_message`` one by one, in order, and its error is raised with the position. Lines of test_decoding are read by
``read_line``, one at a time.
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.columnar import message_bounds
from spark_jobs.decode.gather import gather
from spark_jobs.decode.tuple_vectors import DamagedError, MessageBytes, require
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import FieldError, LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import LogicalMessage
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.test_decoding.lines import MessageLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line

# window             ordinal of the change log's window that holds the message
# commit_lsn_number  commit_lsn as a number, as in the change log: (window, this, ordinal) is the total order
# ordinal            number of changes before the message in its transaction; 0 for a non-transactional one
# commit_lsn         start of the transaction's commit record, as pg_lsn prints it; of a non-transactional one its LSN
# xid, commit_time   of the transaction; null for a non-transactional message
# lsn                the message's own LSN; null for a transactional one with test_decoding, which does not send it
# content            as given to pg_logical_emit_message: text is in the server's encoding
# origin             name of the transaction's replication origin; null for what was written on this server
MESSAGES_SCHEMA = pa.schema(
    [
        pa.field("window", pa.int64(), nullable=False),
        pa.field("commit_lsn_number", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("commit_lsn", pa.string(), nullable=False),
        pa.field("xid", pa.int64()),
        pa.field("commit_time", pa.timestamp("us", tz="UTC")),
        pa.field("transactional", pa.bool_(), nullable=False),
        pa.field("lsn", pa.string()),
        pa.field("prefix", pa.string(), nullable=False),
        pa.field("content", pa.binary(), nullable=False),
        pa.field("origin", pa.string()),
    ]
)
# the columns of the change log that are needed
LOG_COLUMNS = ("window", "commit_lsn", "ordinal", "xid", "commit_time", "origin", "data")

_LINE = b"m"  # the first letter of test_decoding's "message:"
_PREFIX_AT = 10  # message type, flags, LSN
_SHORTEST = _PREFIX_AT + 1 + 4
_HEXADECIMAL = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class DamagedMessageError(DecodeError):
    """``window`` is the ordinal of the window that holds the message."""

    def __init__(self, what: str, *, hint: str = "", window: int = -1) -> None:
        super().__init__(what, hint=hint)
        self.window = window


def message_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Turn rows of kind M (LOG_COLUMNS) into rows of MESSAGES_SCHEMA, one for one. Raises DamagedMessageError."""
    data, commit_lsn = rows.column("data"), rows.column("commit_lsn")
    try:
        of_lines = data[0].as_py().startswith(_LINE)
        transactional, lsn, prefix, content = _of_lines(data, commit_lsn) if of_lines else _fields(data)
    except (DamagedError, LogicalRepError):
        raise _precise_error(rows) from None
    return pa.RecordBatch.from_arrays(
        [
            rows.column("window"),
            commit_lsn,
            rows.column("ordinal"),
            lsn_text(commit_lsn.to_numpy()),
            pc.if_else(transactional, rows.column("xid"), pa.scalar(None, pa.int64())),
            rows.column("commit_time"),
            transactional,
            lsn,
            prefix,
            content,
            rows.column("origin"),
        ],
        schema=MESSAGES_SCHEMA,
    )


def _fields(messages: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """(whether transactional, LSN, prefix, content) of each message. Raises DamagedError."""
    data, bounds = message_bounds(messages)
    begins, ends = bounds[:-1], bounds[1:]
    require(ends - begins >= _SHORTEST)
    flags = data[begins + 1]
    require((data[begins] == ord("M")) & (flags <= 1))
    every = np.ones(len(begins), np.bool_)
    rest = gather(data, begins + _PREFIX_AT, ends - begins - _PREFIX_AT, every)
    prefix_length = pc.find_substring(rest, b"\0").to_numpy().astype(np.int64)
    require(prefix_length >= 0)
    counted = begins + _PREFIX_AT + prefix_length + 1
    require(counted + 4 <= ends)
    message = MessageBytes(data)
    length = message.uint32(counted)
    require(counted + 4 + length == ends)
    try:
        prefix = gather(data, begins + _PREFIX_AT, prefix_length, every).cast(pa.string())
    except pa.ArrowInvalid:
        raise DamagedError(np.arange(len(begins))) from None
    lsn = message.uint32(begins + 2) << 32 | message.uint32(begins + 6)
    content = gather(data, counted + 4, length, every)
    return pa.array(flags == 1), lsn_text(lsn), prefix.combine_chunks(), content.combine_chunks()


def _of_lines(messages: pa.Array, commit_lsn: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """The same for test_decoding's lines, which do not hold the LSN. Raises LogicalRepError."""
    lines = [_message_line(line) for line in messages.to_pylist()]
    transactional = pa.array([line.transactional for line in lines])
    return (
        transactional,
        pc.if_else(transactional, pa.scalar(None, pa.string()), lsn_text(commit_lsn.to_numpy())),
        pa.array([line.prefix for line in lines], pa.string()),
        pa.array([line.content for line in lines], pa.binary()),
    )


def _message_line(data: bytes) -> MessageLine:
    line = read_line(data)
    if not isinstance(line, MessageLine):
        raise FieldError(f"it is a {type(line).__name__}")
    return line


def has_prefix(prefixes: pa.Array, patterns: Sequence[str]) -> pa.Array:
    """Which of ``prefixes`` match a pattern: exactly, or by their beginning where the pattern ends with ``*``."""
    exact = pa.array([pattern for pattern in patterns if not pattern.endswith("*")], pa.string())
    matches = pc.is_in(prefixes, exact)
    for pattern in patterns:
        if pattern.endswith("*"):
            matches = pc.or_(matches, pc.starts_with(prefixes, pattern[:-1]))
    return matches


def lsn_text(lsns: np.ndarray) -> pa.Array:
    """LSNs as PostgreSQL prints them, ``16/B374D848``."""
    halves = [pc.utf8_ltrim(_hexadecimal(half), "0") for half in (lsns >> 32, lsns & 0xFFFFFFFF)]
    high, low = (pc.if_else(pc.equal(half, ""), "0", half) for half in halves)
    return pc.binary_join_element_wise(high, low, "/")


def _hexadecimal(values: np.ndarray) -> pa.Array:
    """Eight hexadecimal digits per value."""
    digits = _HEXADECIMAL[(values[:, None] >> np.arange(28, -4, -4)) & 15]
    return pa.array(np.ascontiguousarray(digits).view("S8").reshape(-1), pa.binary()).cast(pa.string())


def _precise_error(rows: pa.RecordBatch) -> DamagedMessageError:
    positions = zip(*(rows.column(name).to_pylist() for name in ("window", "commit_lsn", "ordinal")), strict=True)
    for (window, commit_lsn, ordinal), data in zip(positions, rows.column("data"), strict=True):
        fault = _fault(data.as_py())
        if fault is not None:
            return DamagedMessageError(
                f"window {window}, commit LSN {Lsn(commit_lsn)}, ordinal {ordinal}: a logical message is not"
                f" understood: {fault}",
                hint="the change log keeps it unparsed; report it with the server's version",
                window=window,
            )
    # the two readers disagree: a bug of ours, so stop here
    window = rows.column("window")[0].as_py()
    return DamagedMessageError(
        f"window {window}: logical messages are refused by the columnar reader only",
        hint="report it with the server's version",
        window=window,
    )


def _fault(data: bytes) -> LogicalRepError | str | None:
    try:
        if data.startswith(_LINE):
            _message_line(data)
            return None
        message = read_message(data)
    except LogicalRepError as error:
        return error
    return None if isinstance(message, LogicalMessage) else f"it is a {type(message).__name__}"
