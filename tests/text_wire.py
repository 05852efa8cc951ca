"""Lines → the bytes that ``test_decoding`` writes, after ``test_decoding.c``. Only tests write lines."""

from __future__ import annotations

import re

from spark_jobs.logicalrep.messages import commit_time
from spark_jobs.logicalrep.test_decoding.lines import (
    BeginLine,
    CommitLine,
    Form,
    Line,
    MessageLine,
    NamedValue,
    Row,
    RowLine,
    StreamEvent,
    StreamLine,
    StreamMessageLine,
    TableName,
    TruncateLine,
    TwoPhaseLine,
)

# a few of the words that quote_identifier puts in quotes, reserved or not usable as a column's name
_RESERVED = {"user", "order", "table", "end", "select", "between", "int"}


def write_line(line: Line) -> bytes:
    match line:
        case BeginLine(xid):
            return b"BEGIN" + _xid(" ", xid)
        case CommitLine(xid, commit_ts):
            return b"COMMIT" + _xid(" ", xid) + _time(commit_ts)
        case TwoPhaseLine(phase, gid, xid, time):
            return f"{phase.value} {quote_literal(gid)}".encode() + _xid(", txid ", xid) + _time(time)
        case RowLine():
            return _row_line(line)
        case TruncateLine(tables, restart_seqs, cascade):
            flags = " restart_seqs" * restart_seqs + " cascade" * cascade or " (no-flags)"
            return f"table {', '.join(map(table_name, tables))}: TRUNCATE:{flags}".encode()
        case MessageLine(transactional, prefix, content):
            return _message("message", transactional, prefix, len(content)) + b" content:" + content
        case StreamMessageLine(transactional, prefix, size, content):
            head = _message("streaming message", transactional, prefix, size)
            return head if content is None else head + b" content:" + content
        case StreamLine(StreamEvent.PREPARE, xid, gid, time):
            name = quote_literal(gid or "")
            transaction = name if xid is None else f"TXN {name}, txid {xid}"
            return f"{StreamEvent.PREPARE.value} {transaction}".encode() + _time(time)
        case StreamLine(event, xid, _, time):
            unnamed = " transaction" if event in (StreamEvent.CHANGE, StreamEvent.TRUNCATE) else ""
            return event.value.encode() + (_xid(" TXN ", xid) or unnamed.encode()) + _time(time)


def _row_line(line: RowLine) -> bytes:
    words = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
    head = f"table {table_name(line.table)}: {words[line.kind]}:".encode()
    if not line.has_tuple_data and line.kind != "U":
        return head + b" (no-tuple-data)"
    if line.kind == "D":
        return head + row(line.old or ())
    if line.kind == "U" and line.old is not None:
        head += b" old-key:" + row(line.old) + b" new-tuple:"
    return head + (b" (no-tuple-data)" if line.new is None else row(line.new))


def row(values: Row) -> bytes:
    return b"".join(f" {quote_identifier(v.name)}[{v.type_name}]:".encode() + _value(v) for v in values)


def _value(value: NamedValue) -> bytes:
    match value.form:
        case Form.NULL | Form.UNCHANGED_TOAST as form:
            word: str = form.value
            return word.encode()
        case Form.NUMBER:
            return value.text
        case Form.BOOLEAN:
            return b"true" if value.text == b"t" else b"false"
        case Form.BITS:
            return b"B'" + value.text + b"'"
        case Form.QUOTED:
            return b"'" + value.text.replace(b"'", b"''") + b"'"


def quote_identifier(name: str) -> str:
    if re.fullmatch("[a-z_][a-z0-9_]*", name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    escaped = "E" if "\\" in text else ""
    return escaped + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def table_name(table: TableName) -> str:
    return ".".join(map(quote_identifier, table))


def _message(word: str, transactional: bool, prefix: str, size: int) -> bytes:
    return f"{word}: transactional: {int(transactional)} prefix: {prefix}, sz: {size}".encode()


def _xid(before: str, xid: int | None) -> bytes:
    return b"" if xid is None else f"{before}{xid}".encode()


def _time(time: int | None) -> bytes:
    if time is None:
        return b""
    text = commit_time(time).replace(tzinfo=None).isoformat(" ")
    return f" (at {text.rstrip('0') if '.' in text else text}+00)".encode()
