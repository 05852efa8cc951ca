"""Small windows to land in a log: each with a few inserts, and 100 bytes of WAL."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.change_log.log import facts_rows, marker_row
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from tests.change_log.identity import IDENTITY

FACTS = RelationFacts(
    16384, "public", "t", "d", ("id",), ("id",), (ColumnFacts(1, "id", 23, -1, "integer", 23, -1, "int4out", True),)
)


def marker(ordinal: int) -> WindowMarker:
    return WindowMarker(ordinal, Window(Lsn(100 * ordinal), Lsn(100 * ordinal + 100)), IDENTITY)


def window(ordinal: int, relid: int = 16384, count: int = 3) -> list[pa.RecordBatch]:
    inserts = [
        {"window": ordinal, "commit_lsn": 100 * ordinal + 1, "ordinal": n, "kind": "I", "relid": relid, "data": b"I"}
        for n in range(count)
    ]
    relation = RelationSeen(relid, 42, 100 * ordinal + 1, 0, "public", "t", b"")
    batches = [pa.RecordBatch.from_pylist(inserts, schema=CHANGE_LOG_SCHEMA)] if inserts else []
    return [*batches, facts_rows(ordinal, [relation], [FACTS]), marker_row(marker(ordinal))]
