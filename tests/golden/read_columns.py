"""Recordings through the columnar way: to rows of the change log, and these through the columnar decoders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.capture.pgoutput.assembly import Assembly
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.test_decoding.line_tables import LineTable, LineTables
from spark_jobs.capture.test_decoding.window_rows import LINE_SPOOL_SCHEMA, LineWindowRows
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.decode.columnar import decode_changes, message_bounds
from spark_jobs.decode.line_columns import decode_lines
from spark_jobs.logicalrep.lsn import Lsn, Position, Window
from spark_jobs.logicalrep.messages import Change
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.logicalrep.test_decoding.lines import MessageLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from spark_jobs.qualified_name import QualifiedName
from tests.decode.row_changes import change_at
from tests.golden.golden_file import ExpectedChange, Recording
from tests.golden.observed import Observed, expected_of
from tests.golden.read_recordings import relation_of
from tests.wire import write_message

_WINDOW = Window(Lsn(1), Lsn(1 << 40))
Row = dict[str, Any]


def log_rows(recording: Recording, batch_size: int, memory: int = 1 << 20) -> pa.Table:
    """The change log's rows of a recording of pgoutput, read in batches of so many messages."""
    messages = pa.array([row.data for row in recording.rows], pa.binary())
    batches = [
        pa.record_batch([messages[lo : lo + batch_size]], names=["data"]) for lo in range(0, len(messages), batch_size)
    ]
    with TransactionSpool(memory) as spool:
        assembled = Assembly(spool).batches(1, _WINDOW, batches)
        return pa.Table.from_batches(WindowRows(1, _WINDOW).rows(assembled), CHANGE_LOG_SCHEMA)


def line_rows(recording: Recording, changes: tuple[ExpectedChange, ...], batch_size: int) -> pa.Table:
    """The change log's rows of a recording of test_decoding; tables are as the theme left them."""
    tables: dict[tuple[str, str], LineTable] = {}
    for each in changes:
        if each.table is not None and each.relation is not None:
            name = QualifiedName.parse(each.table)
            relid = (
                tables[name.nspname, name.relname].relid
                if (name.nspname, name.relname) in tables
                else 16384 + len(tables)
            )
            message = write_message(relation_of(each.relation, name, relid))
            tables[name.nspname, name.relname] = LineTable(relid, (name.nspname, name.relname), message)
    lsns = pa.array([row.lsn for row in recording.rows], pa.int64())
    lines = pa.array([row.data.decode() for row in recording.rows], pa.string())
    batches = [
        pa.record_batch([lsns[lo : lo + batch_size], lines[lo : lo + batch_size]], names=["lsn", "data"])
        for lo in range(0, len(lines), batch_size)
    ]
    known = LineTables(tables, (), lambda _: False)
    with TransactionSpool(schema=LINE_SPOOL_SCHEMA) as spool:
        rows = LineWindowRows(1, _WINDOW, lambda: known, spool, with_messages=True)
        return pa.Table.from_batches(rows.rows(batches), CHANGE_LOG_SCHEMA)


def observe_columns(recording: Recording, batch_size: int) -> list[Observed]:
    """pgoutput's messages by way of the log."""
    rows = log_rows(recording, batch_size).to_pylist()
    relations = {row["version"]: _relation(row["data"]) for row in rows if row["kind"] == "R"}
    by_relid = {relation.relid: relation for relation in relations.values()}
    observed = []
    for transaction, row in _numbered(rows):
        kind, origin, data = row["kind"], row["origin"], row["data"]
        if kind == "M":
            message = read_message(data)
            content = message.content.decode()  # type: ignore[union-attr]
            observed.append(Observed(transaction, "M", prefix=message.prefix, content=content))  # type: ignore[union-attr]
            continue
        relation = by_relid[row["relid"]] if kind == "T" else relations[row["version"]]
        name = QualifiedName(relation.nspname, relation.relname)
        change = None if kind == "T" else _decoded(data, relation)
        observed.append(Observed(transaction, kind, origin, name, relation, change))
    return observed


def observe_line_columns(recording: Recording, changes: tuple[ExpectedChange, ...], batch_size: int) -> list[Observed]:
    """test_decoding's lines by way of the log; each is decoded with the table as it was when it was written."""
    rows = line_rows(recording, changes, batch_size).to_pylist()
    names = {row["relid"]: _relation(row["data"]) for row in rows if row["kind"] == "R"}
    due = iter([each for each in expected_of(recording, changes) if each.kind in "IUD"])
    observed = []
    for transaction, row in _numbered(rows):
        if row["kind"] == "M":
            message = read_line(row["data"])
            assert isinstance(message, MessageLine)
            observed.append(Observed(transaction, "M", prefix=message.prefix, content=message.content.decode()))
            continue
        name = QualifiedName(names[row["relid"]].nspname, names[row["relid"]].relname)
        if row["kind"] == "T":
            observed.append(Observed(transaction, "T", None, name))
            continue
        expected = next(due).relation
        assert expected is not None
        relation = relation_of(expected, name, row["relid"])
        change = None if b"(no-tuple-data)" in row["data"] else _decoded_line(row["data"], relation)
        observed.append(Observed(transaction, row["kind"], None, name, relation, change))
    return observed


def _numbered(rows: list[Row]) -> Iterator[tuple[int | None, Row]]:
    """Changes in total order with the number of their transaction; loose messages have xid 0."""
    changes = sorted(
        (row for row in rows if row["kind"] in set("IUDTM")), key=lambda row: (row["commit_lsn"], row["ordinal"])
    )
    number = 0
    for (_, xid), group in groupby(changes, key=lambda row: (row["commit_lsn"], row["xid"])):
        number += xid != 0
        for row in group:
            yield (number if xid != 0 else None), row


def _relation(message: bytes) -> Relation:
    relation = read_message(message)
    assert isinstance(relation, Relation)
    return relation


def _decoded(message: bytes, relation: Relation) -> Change:
    data, bounds = _bounds(message)
    changes = decode_changes(data, bounds[:-1], bounds[1:], relation, lambda row: Position(Lsn(1), row))
    return replace(change_at(changes, 0), relid=relation.relid)


def _decoded_line(line: bytes, relation: Relation) -> Change:
    data, bounds = _bounds(line)
    changes = decode_lines(data, bounds[:-1], bounds[1:], relation, lambda row: Position(Lsn(1), row))
    return replace(change_at(changes, 0), relid=relation.relid)


def _bounds(message: bytes) -> tuple[np.ndarray, np.ndarray]:
    return message_bounds(pa.array([message], pa.binary()))
