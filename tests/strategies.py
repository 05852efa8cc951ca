"""Hypothesis strategies for messages, shared by the tests of both decoders."""

from __future__ import annotations

from hypothesis import strategies as st

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BeginPrepare,
    BinaryValue,
    Change,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    Streamed,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn

OIDS = st.integers(0, 2**32 - 1)
XIDS = st.integers(1, 2**32 - 1)
LSNS = st.integers(1, 2**64 - 1).map(Lsn)
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
COLUMN_VALUES = st.one_of(
    st.none(),
    st.just(UNCHANGED_TOAST),
    st.binary(max_size=20),
    st.binary(max_size=8).map(BinaryValue),
)


def tuple_data(width: int | None = None) -> st.SearchStrategy[TupleData]:
    low, high = (0, 6) if width is None else (width, width)
    return st.lists(COLUMN_VALUES, min_size=low, max_size=high).map(tuple)


RELATION_COLUMNS = st.builds(RelationColumn, NAMES, OIDS, st.integers(-(2**31), 2**31 - 1), st.booleans())
RELATIONS = st.builds(
    Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(RELATION_COLUMNS, max_size=5).map(tuple)
)


def changes(relid: st.SearchStrategy[int] = OIDS, width: int | None = None) -> st.SearchStrategy[Change]:
    """Inserts, updates of all three forms and deletes of both."""
    row = tuple_data(width)
    absent = st.none()
    return st.one_of(
        st.builds(Insert, relid, row),
        st.builds(Update, relid, absent, absent, row),
        st.builds(Update, relid, row, absent, row),
        st.builds(Update, relid, absent, row, row),
        st.builds(Delete, relid, row, absent),
        st.builds(Delete, relid, absent, row),
    )


DATA_MESSAGES = st.one_of(
    RELATIONS,
    st.builds(Type, OIDS, NAMES, NAMES),
    changes(),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), LSNS, NAMES, st.binary(max_size=20)),
)
STREAMED = st.builds(Streamed, XIDS, DATA_MESSAGES)

# protocol 1
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, TIMESTAMPS, OIDS),
    st.builds(Commit, LSNS, LSNS, TIMESTAMPS),
    st.builds(Origin, st.integers(0, 2**64 - 1).map(Lsn), NAMES),
    DATA_MESSAGES,
)

# what each protocol added; protocol 4 only lengthens StreamAbort
MESSAGES_ADDED = {
    2: st.one_of(
        st.builds(StreamStart, XIDS, st.booleans()),
        st.just(StreamStop()),
        st.builds(StreamCommit, XIDS, LSNS, LSNS, TIMESTAMPS),
        st.builds(StreamAbort, XIDS, XIDS),
    ),
    3: st.one_of(
        st.builds(BeginPrepare, LSNS, LSNS, TIMESTAMPS, XIDS, NAMES),
        st.builds(Prepare, LSNS, LSNS, TIMESTAMPS, XIDS, NAMES),
        st.builds(CommitPrepared, LSNS, LSNS, TIMESTAMPS, XIDS, NAMES),
        st.builds(RollbackPrepared, LSNS, LSNS, TIMESTAMPS, TIMESTAMPS, XIDS, NAMES),
        st.builds(StreamPrepare, LSNS, LSNS, TIMESTAMPS, XIDS, NAMES),
    ),
    4: st.builds(StreamAbort, XIDS, XIDS, st.integers(0, 2**64 - 1).map(Lsn), TIMESTAMPS),
}
ALL_MESSAGES = st.one_of(MESSAGES, *MESSAGES_ADDED.values())


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes cut short, with bytes appended, or with one byte changed."""
    how = draw(st.sampled_from(["cut", "append", "change"]))
    if how == "cut":
        return data[: draw(st.integers(0, max(len(data) - 1, 0)))]
    if how == "append" or not data:
        return data + draw(st.binary(min_size=1, max_size=3))
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
