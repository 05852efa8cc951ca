"""Messages to rows: wherever batches are cut, the rows are the same, and what is not understood raises."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.relation import fingerprint
from tests.capture.pgoutput.packed_messages import begin, change, commit, emitted, relation, truncate

WINDOW = Window(Lsn(0x100), Lsn(0x10_0000))
EPOCH = 946_684_800_000_000


@dataclass(frozen=True)
class Expected:
    """A row as the object-by-object reading gives it."""

    commit_lsn: int
    ordinal: int
    xid: int
    commit_time: int | None
    origin: str | None
    origin_lsn: int | None
    kind: str
    relid: int | None
    version: int | None
    data: bytes


NO_RELID: list[int | None] = [None]
Stream = tuple[list[bytes], list[Expected]]
RELIDS = [1, 16384, (1 << 32) - 1]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """A window's messages with the rows that they must become, told one by one."""
    messages: list[bytes] = []
    rows: list[Expected] = []
    versions: dict[int, int] = {}
    lsn = int(WINDOW.lo)
    for number in range(draw(st.integers(0, 6))):
        lsn += draw(st.integers(1, 500))
        if draw(st.booleans()):
            messages.append(emitted(lsn, transactional=False))
            rows.append(Expected(lsn, 0, 0, None, None, None, "M", None, None, messages[-1]))
            continue
        xid, time = 700 + number, draw(st.integers(0, 10**15))
        messages.append(begin(lsn, xid, time))
        ordinal, origin, origin_lsn = 0, draw(st.sampled_from([None, "näher", ""])), None
        if origin is not None:
            origin_lsn = draw(st.sampled_from([None, 1, 1 << 40]))
            messages.append(b"O" + struct.pack("!q", origin_lsn or 0) + origin.encode() + b"\0")
        for kind in draw(st.text("IUDTRYM", max_size=8)):
            relid = draw(st.sampled_from(RELIDS))
            told: list[tuple[str, bytes, list[int]]] = []
            if kind == "R" or (kind in "IUD" and relid not in versions):
                told.append(("R", relation(relid, draw(st.integers(1, 3))), [relid]))
                versions[relid] = fingerprint(told[0][1])
            if kind in "IUD":
                told.append((kind, change(kind, relid, draw(st.binary(max_size=9))), [relid]))
            if kind == "T":
                relids = draw(st.lists(st.sampled_from(RELIDS), min_size=1, unique=True))
                told.append(("T", truncate(*relids), relids))
            if kind == "Y":
                told.append(("Y", b"Y" + struct.pack("!I", 99) + b"s\0n\0", []))
            if kind == "M":
                told.append(("M", emitted(3, transactional=True), []))
            for letter, message, relids in told:
                messages.append(message)
                for one in relids or NO_RELID:
                    version = versions[one] if letter in "IUDR" and one is not None else None
                    where = (lsn, ordinal, xid, time + EPOCH, origin, origin_lsn)
                    rows.append(Expected(*where, letter, one, version, message))
                ordinal += letter in "IUDTM"
        messages.append(commit(lsn, time))
    return messages, rows


def read(messages: list[bytes], cuts: list[int]) -> tuple[WindowRows, list[Expected]]:
    assembled = WindowRows(3, WINDOW)
    bounds = [0, *sorted(cuts), len(messages)]
    batches = [
        # a slice of a longer array: offsets do not start at 0
        pa.record_batch([pa.array([b"before", *messages], pa.binary())[1:][lo:hi]], names=["data"])
        for lo, hi in pairwise(bounds)
    ]
    table = pa.Table.from_batches(list(assembled.rows(batches)), CHANGE_LOG_SCHEMA)
    assert set(table.column("window").to_pylist()) <= {3}
    times = table.column("commit_time").cast(pa.int64()).to_pylist()
    fields = table.drop_columns(["window", "commit_time"]).to_pylist()
    found = [Expected(commit_time=time, **row) for row, time in zip(fields, times, strict=True)]
    return assembled, found


@given(streams(), st.lists(st.integers(0, 60), max_size=8))
def test_rows_are_the_same_wherever_batches_are_cut(
    stream: tuple[list[bytes], list[Expected]], cuts: list[int]
) -> None:
    messages, expected = stream
    assembled, rows = read(messages, [min(cut, len(messages)) for cut in cuts])
    assert rows == expected
    assert assembled.messages == len(messages)
    assert assembled.bytes == sum(map(len, messages))
    assert assembled.logical_messages == sum(message[:1] == b"M" for message in messages)
    assert assembled.unknown == ()
    assert assembled.transactions == sum(message[:1] == b"B" for message in messages)
    for counts in assembled.relation_counts():
        kinds = [row.kind for row in expected if row.relid == counts.relid]
        assert (counts.changes.inserts, counts.changes.updates) == (kinds.count("I"), kinds.count("U"))
        assert (counts.changes.deletes, counts.changes.truncates) == (kinds.count("D"), kinds.count("T"))
        changes = [row.data for row in expected if row.relid == counts.relid and row.kind in ("I", "U", "D", "T")]
        assert counts.bytes == sum(map(len, changes))
        if "R" in kinds:
            assert (counts.nspname, counts.relname) == ("public", f"t{counts.relid}")


R = relation(1, 1)
BROKEN = {
    "the transaction has no Commit": [begin(0x200), R, change("I", 1)],
    "message type 'S' is not known": [begin(0x200), b"S123"],
    "message type '\\x00' is not known": [begin(0x200), b""],
    "relation 2 was not announced": [begin(0x200), R, change("I", 2), commit(0x200)],
    "'B' message stands in the wrong place": [begin(0x200), begin(0x300), commit(0x300)],
    "'C' message stands in the wrong place": [commit(0x200)],
    "'I' message stands in the wrong place": [begin(0x200), R, commit(0x200), change("I", 1)],
    "'M' message stands in the wrong place": [begin(0x200), emitted(0x210, transactional=False), commit(0x200)],
    "Begin and Commit name different LSNs": [begin(0x200), commit(0x208)],
    "not of this window": [begin(0x99), commit(0x99)],
    "out of commit order": [begin(0x300), commit(0x300), begin(0x200), commit(0x200)],
    "'B' message has the wrong length": [begin(0x200) + b"\0", commit(0x200)],
    "'I' message has the wrong length": [begin(0x200), b"I\0\0", commit(0x200)],
    "Truncate message has the wrong length": [begin(0x200), truncate(1) + b"\0", commit(0x200)],
    "a Relation message names no table": [begin(0x200), b"R" + bytes(4) + b"public", commit(0x200)],
    "origin's name is not UTF-8": [begin(0x200), b"O" + bytes(8) + b"\xff\0", commit(0x200)],
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("cut_everywhere", [False, True])
def test_what_is_not_understood_raises_and_names_the_place(what: str, cut_everywhere: bool) -> None:
    messages = BROKEN[what]
    with pytest.raises(DecodeError) as caught:
        read(messages, list(range(1, len(messages))) if cut_everywhere else [])
    assert what in str(caught.value).replace("\x00", "\\x00")
    assert str(caught.value).startswith("window 3 [0/100, 0/100000), commit LSN 0/")


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_random_bytes_raise_typed_errors_only(messages: list[bytes]) -> None:
    try:
        read([begin(0x200), *messages], [])
    except DecodeError:
        return
    assert messages[-1][:1] in (b"C", b"M")
