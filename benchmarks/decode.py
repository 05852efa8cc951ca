"""Decode and net change alone, on generated messages: 900,000 changes of a seven-column table with a bigint key.

Run: python -m benchmarks.decode. No server, no Spark, one core; best of three.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.in_tasks import final_net, partial_net
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.decode.columnar import decode_changes, message_bounds
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation, fingerprint
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType, lake_type
from spark_jobs.schema.net_columns import arrow_schema
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import LakeColumn, TableShape

RELID = 16384
COLUMNS = [("id", 20, -1), ("customer", 23, -1), ("amount", 1700, 10 << 16 | 2 + 4), ("state", 25, -1)]
COLUMNS += [("note", 25, -1), ("created", 1184, -1), ("updated", 1114, -1)]
INSERTS, UPDATES, DELETES, MORE_INSERTS = 300_000, 400_000, 100_000, 100_000


def relation_message() -> bytes:
    head = b"R" + struct.pack(">I", RELID) + b"public\0t\0d" + struct.pack(">H", len(COLUMNS))
    return head + b"".join(
        struct.pack(">B", name == "id") + name.encode() + b"\0" + struct.pack(">Ii", oid, typmod)
        for name, oid, typmod in COLUMNS
    )


def column(text: str) -> bytes:
    data = text.encode()
    return b"t" + struct.pack(">i", len(data)) + data


def new_tuple(key: int, noise: random.Random) -> bytes:
    values = [str(key), str(noise.randrange(100_000)), f"{noise.randrange(10**6)}.{noise.randrange(100):02}", "shipped"]
    values += [f"note {noise.randrange(10**9):030}", "2026-01-02 03:04:05.678901+00", "2026-01-02 03:04:05.6"]
    return b"N" + struct.pack(">H", len(values)) + b"".join(map(column, values))


def messages() -> list[bytes]:
    noise = random.Random(7)  # noqa: S311 - the same workload on every run
    relid = struct.pack(">I", RELID)
    made = [b"I" + relid + new_tuple(key, noise) for key in range(INSERTS)]
    made += [b"U" + relid + new_tuple(noise.randrange(INSERTS), noise) for _ in range(UPDATES)]
    for key in range(DELETES):
        made.append(b"D" + relid + b"K" + struct.pack(">H", len(COLUMNS)) + column(str(key)) + b"n" * 6)
    return made + [b"I" + relid + new_tuple(INSERTS + key, noise) for key in range(MORE_INSERTS)]


def change_log(made: list[bytes], version: int) -> pa.Table:
    return pa.table(
        {
            "commit_lsn": pa.array(np.arange(len(made)) // 1000 * 8 + 8),
            "ordinal": pa.array(np.arange(len(made)) % 1000),
            "kind": pa.array([chr(message[0]) for message in made]),
            "version": pa.array(np.full(len(made), version)),
            "data": pa.array(made, pa.binary()),
        }
    )


def best(what: str, function: Callable[[], object]) -> None:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    print(f"{what:<44} {min(seconds):6.2f} s")


def main() -> None:
    pa.set_cpu_count(1)
    wire = relation_message()
    relation = read_message(wire)
    assert isinstance(relation, Relation)
    version = fingerprint(wire)
    columns = [
        LakeColumn(name, index + 1, _type(oid, typmod), name == "id", oid, typmod)
        for index, (name, oid, typmod) in enumerate(COLUMNS)
    ]
    shape = TableShape(RELID, QualifiedName("public", "t"), tuple(columns))
    versions = {version: RelationVersion.of(wire, shape)}
    rows = change_log(messages(), version)
    data, bounds = message_bounds(rows.column("data").chunk(0))
    print(f"{len(rows):,} changes, {rows.column('data').nbytes / 1e6:.0f} MB")
    best("decode", lambda: decode_changes(data, bounds[:-1], bounds[1:], relation, lambda _: Position(Lsn(0), 0)))
    best("decode, net change, cast", lambda: net_change(rows, NetRules(shape, versions)))
    rules = NetRules(shape, versions)
    partial, final = partial_net(rules), final_net(rules)
    batches = rows.to_batches(max_chunksize=10_000)
    outcome = pa.Table.from_batches(partial(iter(batches)), schema=arrow_schema(partial.fields))
    print(f"the partial step keeps {len(outcome):,} rows")
    best("partial net", lambda: list(partial(iter(batches))))
    best("final net of what is left", lambda: list(final(iter(outcome.to_batches()))))


def _type(oid: int, typmod: int) -> LakeType:
    return lake_type(oid, typmod)


if __name__ == "__main__":
    main()
