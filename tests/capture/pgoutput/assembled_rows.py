"""A window's changes, assembled in columns and, as the oracle, by ``logicalrep``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.pgoutput.assembly import Assembly
from spark_jobs.capture.pgoutput.repeated_announcements import RepeatedAnnouncements
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import LogicalMessage, Type
from spark_jobs.logicalrep.relation import Relation, fingerprint
from tests.reference.assembly import assemble
from tests.reference.transaction import LooseMessage, ReadOptions

WINDOW = Window(Lsn(0x100), Lsn(0x10_0000))


@dataclass(frozen=True)
class Row:
    """A change, in its place, with the version of its relation."""

    commit_lsn: int
    ordinal: int
    xid: int
    origin: str | None
    origin_lsn: int | None
    kind: str
    version: int | None
    data: bytes


def landed(
    wires: list[bytes],
    of: Window,
    cuts: list[int] | None = None,
    memory: int = 1 << 20,
    masked: MaskedTables | None = None,
) -> pa.Table:
    """What capture lands of messages cut into batches at ``cuts``, assembled with a spool of ``memory`` bytes; without
    the commit times: a damaged one is beyond Python's years."""
    bounds = [0, *sorted(min(cut, len(wires)) for cut in cuts or []), len(wires)]
    # a slice of a longer array: offsets do not start at 0
    whole = pa.array([b"before", *wires], pa.binary())[1:]
    batches = [pa.record_batch([whole[lo:hi]], names=["data"]) for lo, hi in pairwise(bounds)]
    with TransactionSpool(memory) as spool:
        assembled = RepeatedAnnouncements().left_out(Assembly(spool, masked).batches(3, of, batches))
        table = pa.Table.from_batches(list(WindowRows(3, of).rows(assembled)), CHANGE_LOG_SCHEMA)
    return table.drop_columns(["commit_time"])


def in_columns(
    wires: list[bytes],
    of: Window,
    cuts: list[int] | None = None,
    memory: int = 1 << 20,
    masked: MaskedTables | None = None,
) -> list[Row]:
    """The changes of ``landed``, each once."""
    announced = set()
    rows: dict[Row, None] = {}
    for row in landed(wires, of, cuts, memory, masked).to_pylist():
        if row["kind"] == "R":
            announced.add(row["version"])
        elif row["kind"] in "IUDTM":
            assert row["kind"] in "TM" or row["version"] in announced
            known = {name: row[name] for name in ("commit_lsn", "ordinal", "xid", "origin", "origin_lsn", "kind")}
            row = Row(**known, version=row["version"], data=row["data"])
            rows[row] = None  # a Truncate has a row for each of its tables
    return list(rows)


def one_by_one(wires: list[bytes], options: ReadOptions) -> list[Row]:
    """The same by ``reference.assembly``."""
    rows: list[Row] = []
    versions: dict[int, int] = {}
    for item in assemble(wires, options):
        if isinstance(item, LooseMessage):
            rows.append(Row(item.message.lsn, 0, 0, None, None, "M", None, item.data))
            continue
        for placed in item.changes:
            message = placed.message
            if isinstance(message, Relation):
                versions[message.relid] = fingerprint(placed.data)
            elif not isinstance(message, Type):
                kind = chr(placed.data[0])
                version = None if isinstance(message, LogicalMessage) or kind == "T" else versions[message.relid]  # type: ignore[union-attr]
                where = (item.commit_lsn, placed.ordinal, item.xid, item.origin, _as_column(item.origin_lsn))
                rows.append(Row(*where, kind, version, placed.data))
    return rows


def _as_column(origin_lsn: Lsn | None) -> int | None:
    """0 says nothing; the upper half of all LSNs, which an origin may name, is negative in the column's 64 bits."""
    return int(origin_lsn) - ((origin_lsn >> 63) << 64) if origin_lsn else None
