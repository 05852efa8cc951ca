"""The tokenizer of ``test_decoding``: print, then read, is the identity; damage is a typed error or another line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.logicalrep.errors import (
    FieldError,
    LogicalRepError,
    RelationMismatchError,
    TrailingBytesError,
    TruncatedMessageError,
    UnknownMessageError,
)
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Change, Delete, Insert, Update
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.logicalrep.test_decoding.changes import TableAlteredError, read_row, read_truncate
from spark_jobs.logicalrep.test_decoding.lines import (
    BeginLine,
    CommitLine,
    Form,
    Line,
    MessageLine,
    NamedValue,
    Phase,
    RowLine,
    StreamEvent,
    StreamLine,
    TruncateLine,
    TwoPhaseLine,
)
from spark_jobs.logicalrep.test_decoding.read_line import read_line, read_table_header
from tests.strategies import damaged
from tests.text_strategies import LINES, line_of, relations, row_changes
from tests.text_wire import write_line


@given(LINES)
def test_print_then_read(line: Line) -> None:
    assert read_line(write_line(line)) == line


@given(st.data(), LINES)
def test_damage_is_refused_with_a_type_or_prints_back(data: st.DataObject, line: Line) -> None:
    wire = data.draw(damaged(write_line(line)))
    try:
        read = read_line(wire)
    except LogicalRepError:
        return
    assert read_line(write_line(read)) == read


@given(st.binary(max_size=60))
def test_any_bytes_are_a_line_or_a_typed_error(wire: bytes) -> None:
    try:
        read_line(wire)
    except LogicalRepError:
        return


NAMED = [
    (b"BEGIN 731", BeginLine(731)),
    (b"BEGIN", BeginLine()),
    (b"COMMIT", CommitLine()),
    (b"COMMIT 5 (at 2000-01-01 00:00:01.5+00)", CommitLine(5, 1_500_000)),
    (b"COMMIT (at 2000-01-01 01:00:00+01)", CommitLine(None, 0)),
    (rb"PREPARE TRANSACTION E'a\\b''c', txid 7", TwoPhaseLine(Phase.PREPARE, "a\\b'c", 7)),
    (b"COMMIT PREPARED 'g'", TwoPhaseLine(Phase.COMMIT, "g")),
    (b'table a."B c:": TRUNCATE: (no-flags)', TruncateLine((("a", "B c:"),))),
    (b"table a.b, c.d: TRUNCATE: restart_seqs cascade", TruncateLine((("a", "b"), ("c", "d")), True, True)),
    (b"message: transactional: 1 prefix: a, b, sz: 2 content:\n,", MessageLine(True, "a, b", b"\n,")),
    (b"streaming change for TXN 9", StreamLine(StreamEvent.CHANGE, 9)),
    (b"streaming truncate for transaction", StreamLine(StreamEvent.TRUNCATE)),
    (b"table a.b: DELETE: (no-tuple-data)", RowLine("D", ("a", "b"), None, None)),
    (b"table a.b: INSERT:", RowLine("I", ("a", "b"), None, ())),
    (
        b"table a.b: UPDATE: old-key: k[integer]:1 new-tuple: k[integer]:2 arr[integer[]]:'{1}' t[text]:null",
        RowLine(
            "U",
            ("a", "b"),
            (NamedValue("k", "integer", Form.NUMBER, b"1"),),
            (
                NamedValue("k", "integer", Form.NUMBER, b"2"),
                NamedValue("arr", "integer[]", Form.QUOTED, b"{1}"),
                NamedValue("t", "text", Form.NULL),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("wire", "line"), NAMED)
def test_lines_of_the_source(wire: bytes, line: Line) -> None:
    assert read_line(wire) == line
    for size in range(len(wire)):
        try:
            assert read_line(wire[:size]) != line
        except LogicalRepError:
            continue


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (b"", UnknownMessageError),
        (b"HELLO", UnknownMessageError),
        (b"BEGIN 12x", TrailingBytesError),
        (b"BEGIN 4294967296", FieldError),
        (b"table a.b: UPSERT: x[text]:'a'", FieldError),
        (b"table A.b: INSERT:", FieldError),
        (b"table a.b: INSERT: x[text]:'a", TruncatedMessageError),
        (b"table a.b: INSERT: x[text]:'a'b", FieldError),
        (b"table a.b: INSERT: x[bit]:B'12'", FieldError),
        (b"table a.b: INSERT: x[integer]:", TruncatedMessageError),
        (b"table a.b: INSERT: x[integer]:maybe", FieldError),
        (b"table a.b, c.d: INSERT: x[integer]:1", FieldError),
        (b"message: transactional: 2 prefix: a, sz: 1 content:x", FieldError),
        (b"message: transactional: 1 prefix: a, sz: 2 content:x", TruncatedMessageError),
        (b"COMMIT 1 (at 2000-13-01 00:00:00+00)", FieldError),
    ],
)
def test_what_is_wrong_has_its_error(wire: bytes, error: type[LogicalRepError]) -> None:
    with pytest.raises(error):
        read_line(wire)


RELATION = Relation(
    16384,
    "public",
    "t",
    "d",
    (RelationColumn("id", 20, -1, True), RelationColumn("ok", 16, -1, False), RelationColumn("doc", 25, -1, False)),
)
FULL = Relation(16384, "public", "t", "f", RELATION.columns)
HEAD = b"table public.t: "


@given(st.data(), relations())
def test_a_line_reads_as_the_change_it_was_printed_from(data: st.DataObject, relation: Relation) -> None:
    change = data.draw(row_changes(relation))
    assert read_row(write_line(line_of(change, relation)), relation) == change


def test_columns_are_the_relations() -> None:
    read = read_row(HEAD + b"INSERT: id[bigint]:1 gen[bigint]:2 ok[boolean]:true doc[text]:'a''b'", RELATION)
    assert read == Insert(16384, (b"1", b"t", b"a'b"))
    kept = read_row(
        HEAD
        + b"UPDATE: old-key: id[bigint]:1 new-tuple: id[bigint]:2 ok[boolean]:null doc[text]:unchanged-toast-datum",
        RELATION,
    )
    assert kept == Update(16384, (b"1", None, None), None, (b"2", None, UNCHANGED_TOAST))
    turned = read_row(HEAD + b"INSERT: ok[boolean]:false doc[text]:'a' id[bigint]:1", RELATION)
    assert turned == Insert(16384, (b"1", b"f", b"a"))
    whole: Change = Delete(16384, None, (b"1", None, b"x"))
    assert read_row(HEAD + b"DELETE: id[bigint]:1 doc[text]:'x'", FULL) == whole


@pytest.mark.parametrize(
    ("line", "relation", "error"),
    [
        (b"INSERT: id[bigint]:1 ok[boolean]:true", RELATION, TableAlteredError),
        (b"INSERT: id[integer]:1 ok[boolean]:true doc[text]:'a'", RELATION, TableAlteredError),
        (b"INSERT: id[bigint]:1 id[bigint]:1 ok[boolean]:true doc[text]:'a'", RELATION, RelationMismatchError),
        (b"INSERT: id[bigint]:1 ok[boolean]:'t' doc[text]:'a'", RELATION, RelationMismatchError),
        (b"DELETE: doc[text]:'a'", RELATION, TableAlteredError),
        (b"DELETE: (no-tuple-data)", RELATION, TableAlteredError),
        (
            b"UPDATE: old-key: id[bigint]:1 new-tuple: id[bigint]:1 ok[boolean]:true doc[text]:unchanged-toast-datum",
            FULL,
            TableAlteredError,
        ),
    ],
)
def test_lines_of_another_time_are_refused(line: bytes, relation: Relation, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_row(HEAD + line, relation)


def test_headers_messages_and_truncates() -> None:
    assert read_table_header(b'table s."a: b", s.c: TRUNCATE: cascade') == ((("s", "a: b"), ("s", "c")), 20)
    assert read_truncate(b"table a.b: TRUNCATE: cascade").cascade
    line = b"message: transactional: 0 prefix: p, sz: 1 content:\xff"
    assert read_line(line) == MessageLine(False, "p", b"\xff")
    with pytest.raises(RelationMismatchError):
        read_truncate(b"BEGIN 1")
