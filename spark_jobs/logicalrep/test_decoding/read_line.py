"""Reads one line of the output plugin ``test_decoding``. The readable specification of its grammar.

Mirrors ``contrib/test_decoding/test_decoding.c`` with all of its options. Names are quoted as in SQL. In text literals
only quotes are doubled; backslashes and newlines are not escaped. A line must be consumed exactly.

The grammar has one ambiguity: a message whose content ends like another message's tail (``, sz: 1 content:x``) could
also be one with a longer prefix. The shortest prefix is taken.
"""

from __future__ import annotations

import re

from spark_jobs.logicalrep.errors import FieldError, UnknownMessageError
from spark_jobs.logicalrep.test_decoding.line_cursor import LineCursor
from spark_jobs.logicalrep.test_decoding.lines import (
    BeginLine,
    CommitLine,
    Form,
    Line,
    MessageLine,
    NamedValue,
    Phase,
    Row,
    RowLine,
    StreamEvent,
    StreamLine,
    StreamMessageLine,
    TableName,
    TruncateLine,
    TwoPhaseLine,
)

_BITS = re.compile(rb"[01]*")
_NO_TUPLE = " (no-tuple-data)"
# only the first and the last byte of a number are checked here; casting checks the rest
_NUMBER_BEGINS, _NUMBER_ENDS = b"-0123456789NI", b"0123456789Ny"
_KINDS = {" INSERT:": "I", " UPDATE:": "U", " DELETE:": "D"}
_BARE = {b"null": Form.NULL, b"unchanged-toast-datum": Form.UNCHANGED_TOAST}
_TIMED_EVENTS = (StreamEvent.COMMIT, StreamEvent.PREPARE)


def read_line(data: bytes) -> Line:
    """Read one whole line. Raises the LogicalRepError (a ValueError) that fits."""
    cursor = LineCursor(data)
    line = _line(cursor)
    cursor.finish()
    return line


def read_table_header(data: bytes) -> tuple[tuple[TableName, ...], int]:
    """The tables that a ``table …:`` line names, and the length of the line up to and including that colon."""
    cursor = LineCursor(data)
    cursor.expect("table ")
    return _header(cursor), cursor.at


def _line(cursor: LineCursor) -> Line:
    if cursor.accept("table "):
        return _table_line(cursor)
    if cursor.accept("BEGIN"):
        return BeginLine(_optional_xid(cursor, " "))
    for phase in Phase:
        if cursor.accept(f"{phase.value} "):
            gid = cursor.escaped_literal("gid")
            return TwoPhaseLine(phase, gid, _optional_xid(cursor, ", txid "), _optional_time(cursor))
    if cursor.accept("COMMIT"):
        time = _optional_time(cursor)
        return (
            CommitLine(None, time)
            if time is not None
            else CommitLine(_optional_xid(cursor, " "), _optional_time(cursor))
        )
    if cursor.accept("message: "):
        transactional = _transactional(cursor)
        prefix, content = cursor.until_counted(", sz: ", " content:", "message")
        return MessageLine(transactional, _utf8(prefix), content)
    return _stream_line(cursor)


def _table_line(cursor: LineCursor) -> RowLine | TruncateLine:
    tables = _header(cursor)
    if cursor.accept(" TRUNCATE:"):
        if cursor.accept(" (no-flags)"):
            return TruncateLine(tables)
        restart_seqs, cascade = cursor.accept(" restart_seqs"), cursor.accept(" cascade")
        if not (restart_seqs or cascade):
            cursor.expect(" (no-flags)")
        return TruncateLine(tables, restart_seqs, cascade)
    kind = next((kind for word, kind in _KINDS.items() if cursor.accept(word)), None)
    if kind is None or len(tables) > 1:
        raise FieldError("a table line is neither an INSERT, UPDATE or DELETE of one table nor a TRUNCATE")
    old = new = None
    if kind == "D":
        old = _row(cursor)
    elif kind == "U" and cursor.accept(" old-key:"):
        old = _row(cursor, until=" new-tuple:")
    if kind != "D":
        new = _row(cursor)
    return RowLine(kind, tables[0], old, new)


def _header(cursor: LineCursor) -> tuple[TableName, ...]:
    tables = [cursor.table_name()]
    while cursor.accept(", "):
        tables.append(cursor.table_name())
    cursor.expect(":")
    return tuple(tables)


def _row(cursor: LineCursor, until: str | None = None) -> Row | None:
    if until is None and cursor.accept(_NO_TUPLE):
        return None
    values: list[NamedValue] = []
    while not (cursor.accept(until) if until else cursor.at_end):
        cursor.expect(" ")
        name = cursor.name("column name")
        cursor.expect("[")
        type_name = cursor.type_name()
        cursor.expect("]:")
        values.append(NamedValue(name, type_name, *_value(cursor)))
    return tuple(values)


def _value(cursor: LineCursor) -> tuple[Form, bytes]:
    if cursor.accept("B'"):
        bits = cursor.word("bits")
        if bits[-1:] != b"'" or not _BITS.fullmatch(bits[:-1]):
            raise FieldError("bits: not zeros and ones in quotes")
        return Form.BITS, bits[:-1]
    if cursor.at_literal:
        return Form.QUOTED, cursor.literal("value")
    word = cursor.word("value")
    if word in _BARE:
        return _BARE[word], b""
    if word in (b"true", b"false"):
        return Form.BOOLEAN, word[:1]
    if word[0] not in _NUMBER_BEGINS or word[-1] not in _NUMBER_ENDS:
        raise FieldError(f"value: neither a number nor a word of the grammar, {len(word)} bytes")
    return Form.NUMBER, word


def _stream_line(cursor: LineCursor) -> StreamLine | StreamMessageLine:
    if cursor.accept("streaming message: "):
        if _transactional(cursor):
            prefix, size = cursor.until_last(", sz: ", "streamed message")
            return StreamMessageLine(True, _utf8(prefix), size, None)
        prefix, content = cursor.until_counted(", sz: ", " content:", "streamed message")
        return StreamMessageLine(False, _utf8(prefix), len(content), content)
    event = next((event for event in StreamEvent if cursor.accept(event.value)), None)
    if event is None:
        raise UnknownMessageError("the line does not begin like any line of test_decoding")
    if event is StreamEvent.PREPARE:
        # "TXN 'gid', txid 731" or "'gid'"
        has_xid = cursor.accept(" TXN")
        cursor.expect(" ")
        gid = cursor.escaped_literal("gid")
        xid = None
        if has_xid:
            cursor.expect(", txid ")
            xid = cursor.uint32("xid")
        return StreamLine(event, xid, gid, _optional_time(cursor))
    xid = _optional_xid(cursor, " TXN ")
    if xid is None and event in (StreamEvent.CHANGE, StreamEvent.TRUNCATE):
        cursor.expect(" transaction")
    return StreamLine(event, xid, None, _optional_time(cursor) if event in _TIMED_EVENTS else None)


def _optional_xid(cursor: LineCursor, before: str) -> int | None:
    return cursor.uint32("xid") if cursor.accept(before) else None


def _optional_time(cursor: LineCursor) -> int | None:
    if not cursor.accept(" (at "):
        return None
    time = cursor.time("time")
    cursor.expect(")")
    return time


def _transactional(cursor: LineCursor) -> bool:
    cursor.expect("transactional: ")
    flag = cursor.accept("1")
    if not flag:
        cursor.expect("0")
    cursor.expect(" prefix: ")
    return flag


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FieldError("message prefix: not UTF-8") from None
