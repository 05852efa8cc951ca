"""Messages with hashes in place of masked values: what the object decoder and encoder give, one message at a time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.pgoutput.assembly import UnattributedMessageError
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BinaryValue,
    Change,
    Commit,
    Delete,
    Insert,
    Message,
    TupleData,
    Update,
)
from spark_jobs.logicalrep.pgoutput.read_message import read_change
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from spark_jobs.options.table_mask import TableMask
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.masked_relation import MaskedRelation
from tests.capture.pgoutput.assembled_rows import Row, in_columns, one_by_one
from tests.reference.errors import AmbiguousMessageError
from tests.reference.transaction import ReadOptions
from tests.strategies import changes
from tests.streams import READ_OPTIONS, SERVERS, History, Server, histories, messages, window
from tests.wire import write_message

SALT = b"pepper"
WINDOW = Window(Lsn(0x100), Lsn(0x10_0000))
RELID = 16384


def tables(*relations: MaskedRelation, below: dict[int, str] | None = None) -> MaskedTables:
    names = [QualifiedName.parse(relation.name) for relation in relations]
    return MaskedTables({table.relid: table for table in relations}, below or {}, names, iter(()))


def masked_table(width: int, *columns: str, relid: int = RELID, name: str = "t") -> MaskedRelation:
    now = {number + 1: f"c{number}" for number in range(width)}
    return MaskedRelation(relid, f"public.{name}", TableMask(columns, SALT), now)


def hashed(value: bytes) -> bytes:
    return hmac.new(SALT, value, hashlib.sha256).hexdigest().encode()


def hashed_row(row: TupleData | None, places: Sequence[int]) -> TupleData | None:
    if row is None:
        return None
    return tuple(hashed(v) if at in places and isinstance(v, bytes) else v for at, v in enumerate(row))


def hashed_change(change: Change, places: Sequence[int]) -> Change:
    rows = {
        name: hashed_row(getattr(change, name), places)
        for name in ("old_key", "old_tuple", "new")
        if hasattr(change, name)
    }
    return replace(change, **rows)  # type: ignore[arg-type]


def hashed_relation(relation: Relation, places: Sequence[int]) -> Relation:
    columns = tuple(
        replace(column, atttypid=25, atttypmod=-1) if at in places else column
        for at, column in enumerate(relation.columns)
    )
    return replace(relation, columns=columns)


def in_transaction(*between: Message) -> list[bytes]:
    begin, commit = Begin(Lsn(0x200), 0, 700), Commit(Lsn(0x200), Lsn(0x240), 0)
    return [write_message(message) for message in (begin, *between, commit)]


def without_binary(change: Change) -> bool:
    rows = (getattr(change, name, None) or () for name in ("old_key", "old_tuple", "new"))
    return not any(isinstance(value, BinaryValue) for row in rows for value in row)


TEXT_CHANGES = st.integers(1, 4).flatmap(
    lambda width: st.tuples(
        st.just(width),
        st.lists(changes(st.just(RELID), width).filter(without_binary), min_size=1, max_size=12),
        st.sets(st.integers(0, width - 1), min_size=1),
    )
)


@given(TEXT_CHANGES, st.lists(st.integers(0, 14), max_size=3))
def test_equals_masking_message_by_message(case: tuple[int, list[Change], set[int]], cuts: list[int]) -> None:
    width, sent, places = case
    relation = Relation(
        RELID, "public", "t", "d", tuple(RelationColumn(f"c{at}", 20 + at, at, at == 0) for at in range(width))
    )
    masked = tables(masked_table(width, *(f"c{at}" for at in places)))
    rows = in_columns(in_transaction(relation, *sent), WINDOW, cuts, masked=masked)
    assert [row.data for row in rows] == [write_message(hashed_change(change, tuple(places))) for change in sent]
    version = fingerprint(write_message(hashed_relation(relation, tuple(places))))
    assert {row.version for row in rows} == {version}


@pytest.mark.slow
@settings(max_examples=300)
@given(
    histories(),
    SERVERS,
    READ_OPTIONS,
    st.lists(st.integers(0, 80), max_size=8),
    st.sampled_from([0, 99, 1 << 20]),
    st.sampled_from(["c0", "c1"]),
)
def test_streamed_and_prepared_transactions_too(
    history: History, server: Server, options: ReadOptions, cuts: list[int], memory: int, column: str
) -> None:
    """One of two tables is masked; it has one column or two, and changes while transactions are open."""
    wires = messages(history, server, options)
    one = replace(masked_table(2, column, name=f"t{RELID}"), earlier=({1: "c0"},))
    try:
        expected = one_by_one(wires, options)
    except AmbiguousMessageError:
        with pytest.raises(UnattributedMessageError):
            in_columns(wires, window(history), cuts, memory, tables(one))
        return
    found = in_columns(wires, window(history), cuts, memory, tables(one))
    assert found == [_masked(row, column) for row in expected]


def _masked(row: Row, column: str) -> Row:
    if row.version is None or int.from_bytes(row.data[1:5], "big") != RELID:
        return row
    for width in (1, 2):
        types = [90001, 25][:width]
        columns = tuple(RelationColumn(f"c{at}", typid, -1, at == 0) for at, typid in enumerate(types))
        relation = Relation(RELID, "public", f"t{RELID}", "d", columns)
        places = [at for at in range(width) if f"c{at}" == column]
        if fingerprint(write_message(relation)) == row.version:
            change = hashed_change(read_change(row.data, relation), places)
            version = fingerprint(write_message(hashed_relation(relation, places)))
            return replace(row, data=write_message(change), version=version)
    raise AssertionError("a version that the history does not have")


def test_null_unchanged_and_empty_values() -> None:
    relation = Relation(RELID, "public", "t", "f", tuple(RelationColumn(f"c{at}", 25, -1, True) for at in range(2)))
    sent: list[Change] = [
        Insert(RELID, (b"", b"")),
        Update(RELID, None, (b"old", b""), (UNCHANGED_TOAST, None)),
        Delete(RELID, (b"key", None), None),
        Delete(RELID, None, (b"a", b"b")),
    ]
    rows = in_columns(in_transaction(relation, *sent), WINDOW, masked=tables(masked_table(2, "c0", "c1")))
    assert [row.data for row in rows] == [write_message(hashed_change(change, (0, 1))) for change in sent]


_TWO = (RelationColumn("c0", 25, -1, True), RelationColumn("c1", 25, -1, False))
OTHER = Relation(16390, "public", "u", "d", (RelationColumn("c0", 25, -1, True),))


def test_relation_messages_alone_are_no_reason_to_stop() -> None:
    masked = tables(masked_table(2, "c0"), below={OTHER.relid: "public.t"})
    unknown = replace(OTHER, relid=RELID, relname="t", columns=(*_TWO[1:], *_TWO[:1]))
    assert in_columns(in_transaction(OTHER, unknown), WINDOW, masked=masked) == []


def test_other_tables_pass_untouched() -> None:
    wires = in_transaction(OTHER, Insert(16390, (b"canary",)))
    assert in_columns(wires, WINDOW, masked=tables(masked_table(1, "c0"))) == in_columns(wires, WINDOW)


@pytest.mark.parametrize(
    ("wires", "below", "said"),
    [
        (in_transaction(replace(OTHER, relid=RELID, relname="t", columns=(*_TWO[1:], *_TWO[:1])),
                        Delete(RELID, (b"canary", None), None)), {},
         "public.t is not read: the catalogue does not say which of its columns are masked"),
        (in_transaction(replace(OTHER, relname="t"), Insert(16390, (b"canary",))), {},
         "public.t is not read: another table now has this name, and the configuration masks its columns"),
        (in_transaction(OTHER, Insert(16390, (b"canary",))), {16390: "public.t"},
         "public.u is not read: it is sent under its own name, and public.t above it has masked columns"),
        ([*in_transaction()[:1], b"z\0\0\x40\0canary", *in_transaction()[1:]], {}, "type 'z' is not known"),
        (in_transaction(Relation(RELID, "public", "t", "d", (RelationColumn("c0", 25, -1, True),)),
                        Insert(RELID, (BinaryValue(b"canary"),))), {}, "was sent in binary"),
        (in_transaction(Relation(RELID, "public", "t", "d", (RelationColumn("c0", 25, -1, True),)),
                        Insert(RELID, (b"canary", b"canary"))), {}, "a change of public.t, which has masked columns"),
        (in_transaction(Insert(RELID, (b"canary",))), {}, "relation 16384 was not announced"),
    ],
)  # fmt: skip
def test_in_doubt_nothing_is_read(wires: list[bytes], below: dict[int, str], said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        in_columns(wires, WINDOW, masked=tables(masked_table(2, "c0"), below=below))
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "window 3" in str(caught.value)
