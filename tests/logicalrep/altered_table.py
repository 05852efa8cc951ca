"""A table that is altered while a transaction is streamed: what a server sends of it."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    Begin,
    Commit,
    Insert,
    Message,
    StreamAbort,
    StreamCommit,
    Streamed,
    StreamStart,
    StreamStop,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn

T = Relation(1, "public", "t", "d", (RelationColumn("c", 25, -1, True),))
Sent = list[Message | Streamed]
S7, E = StreamStart(7, True), StreamStop()


def insert(value: bytes) -> Insert:
    return Insert(1, (value,))


WIDER = replace(T, columns=(*T.columns, RelationColumn("d", 25, -1, False)))
# found by chance: a savepoint lets go of the table, others alter and change it before the stream commits
ALTERED_UNDER_A_STREAM: Sent = [
    *(S7, Streamed(8, T), Streamed(8, insert(b"gone")), E, StreamAbort(7, 8, Lsn(0x105), 0)),
    *(Begin(Lsn(0x110), 0, 9), WIDER, Insert(1, (b"a", b"b")), Commit(Lsn(0x110), Lsn(0x111), 0)),
    StreamCommit(7, Lsn(0x120), Lsn(0x121), 0),
    *(Begin(Lsn(0x130), 0, 10), Insert(1, (b"c", b"d")), Commit(Lsn(0x130), Lsn(0x131), 0)),
]
