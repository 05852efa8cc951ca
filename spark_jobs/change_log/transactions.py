"""The plugin's messages, batch by batch, to rows of the change log: each with its place in the total order.

Vectorised: no Python runs per message. What carries from batch to batch is the open transaction and the relation
versions in force; batches may be cut anywhere. Formats:
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.message_batch import MessageBatch
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import RelationCounts
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.relation import fingerprint

Ints = npt.NDArray[np.int64]

_POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970
_KNOWN = b"BCOMRYIUDT"
_CHANGES = b"IUD"
_UNIX_US = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class _Transaction:
    commit_lsn: int
    commit_time: int
    xid: int
    origin: str | None
    messages: int  # so far, Begin not counted: the next message's ordinal


@dataclass(frozen=True)
class RelationSeen:
    """The first Relation message of one version in the window."""

    relid: int
    version: int
    commit_lsn: int
    ordinal: int
    nspname: str
    relname: str


@dataclass
class WindowRows:
    """Turns one window's messages into rows; what it has counted is complete when ``rows`` is exhausted."""

    ordinal: int
    window: Window
    transactions: int = 0
    messages: int = 0
    bytes: int = 0
    relations: list[RelationSeen] = field(default_factory=list)
    _open: _Transaction | None = None
    _last_lsn: int = -1
    _versions: dict[int, int] = field(default_factory=dict)
    _counts: Counter[int] = field(default_factory=Counter)
    _sizes: Counter[int] = field(default_factory=Counter)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches with the one binary column ``data`` in, batches of CHANGE_LOG_SCHEMA out.

        Begin, Commit and Origin become columns; everything else stays, byte for byte. Truncate gives a row per table.
        Raises DecodeError naming window and LSN.
        """
        for batch in batches:
            if batch.num_rows:
                yield self._batch(MessageBatch.of(batch.column(0)))
        if self._open is not None:
            raise self._error(self._open.commit_lsn, "the transaction has no Commit")

    def relation_counts(self) -> tuple[RelationCounts, ...]:
        """By relid. A truncated table without changes has a Relation message as well, so every relid has its name."""
        names = {seen.relid: (seen.nspname, seen.relname) for seen in self.relations}
        relids = sorted({key >> 8 for key in self._counts})
        return tuple(
            RelationCounts(
                relid,
                *names.get(relid, ("", "")),
                inserts=self._counts[relid << 8 | ord("I")],
                updates=self._counts[relid << 8 | ord("U")],
                deletes=self._counts[relid << 8 | ord("D")],
                truncates=self._counts[relid << 8 | ord("T")],
                bytes=self._sizes[relid],
            )
            for relid in relids
        )

    def _batch(self, batch: MessageBatch) -> pa.RecordBatch:
        self._check_kinds(batch)
        transaction, ordinal, begins = self._places(batch)
        lsns, times, xids, origins = self._transaction_columns(batch, begins)
        commit_lsn, xid = lsns[transaction], xids[transaction]
        loose = batch.loose_messages
        commit_lsn[loose], xid[loose], ordinal[loose] = batch.int64(loose, 2), 0, 0
        relid, repeats = self._relids(batch, commit_lsn)
        self._see_relations(batch, commit_lsn, ordinal)
        version = self._version_in_force(batch, relid, commit_lsn)

        rows = np.repeat(np.arange(batch.count), repeats)
        relid, no_relid = batch.exploded_relids(rows, repeats, relid)
        kind = batch.kind[rows]
        self._count(batch, kind, relid, batch.length[rows])
        columns = [
            pa.array(np.full(len(rows), self.ordinal)),
            pa.array(commit_lsn[rows]),
            pa.array(ordinal[rows]),
            pa.array(xid[rows]),
            pa.array(times[transaction][rows], mask=np.isin(rows, loose)).cast(_UNIX_US),
            origins.take(pa.array(np.where(np.isin(rows, loose), 0, transaction[rows] + 1))),
            _letters(kind),
            pa.array(relid, mask=no_relid),
            pa.array(version[rows], mask=version[rows] < 0),
            batch.messages.take(pa.array(rows)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=CHANGE_LOG_SCHEMA)

    def _check_kinds(self, batch: MessageBatch) -> None:
        short = batch.too_short()
        if len(short):
            raise self._error(self._open_lsn, f"a {chr(batch.kind[short[0]])!r} message has the wrong length")
        unknown = ~np.isin(batch.kind, np.frombuffer(_KNOWN, np.uint8))
        if unknown.any():
            at = int(np.argmax(unknown))
            before = batch.where(b"B")
            before = before[before < at]
            lsn = int(batch.int64(before[-1:], 1)[0]) if len(before) else self._open_lsn
            raise self._error(lsn, f"the message type {chr(batch.kind[at])!r} is not known")

    def _places(self, batch: MessageBatch) -> tuple[Ints, Ints, Ints]:
        """Per message: the index of its transaction (0 the carried one), and its ordinal there; and the Begins."""
        begins, commits = batch.where(b"B"), batch.where(b"C")
        step = np.zeros(batch.count, np.int64)
        step[begins], step[commits] = 1, -1
        depth = np.cumsum(step) + (self._open is not None)
        inside = depth - (step == 1) + (step == -1)  # open before Begin: must be 0; before all else: must be 1
        wanted = np.ones(batch.count, np.int64)
        wanted[begins] = 0
        wanted[batch.loose_messages] = 0
        if (inside != wanted).any():
            at = int(np.argmax(inside != wanted))
            raise self._error(self._open_lsn, f"a {chr(batch.kind[at])!r} message stands in the wrong place")
        transaction = np.cumsum(step == 1)
        first = np.concatenate([[-(self._open.messages if self._open else 0)], begins + 1])
        return transaction, np.arange(batch.count) - first[transaction], begins

    def _transaction_columns(self, batch: MessageBatch, begins: Ints) -> tuple[Ints, Ints, Ints, pa.Array]:
        """Columns by transaction index, the carried one first; origins have a null before it. Keeps the last one."""
        carried = self._open or _Transaction(self._last_lsn, 0, 0, None, 0)
        lsns = np.concatenate([[carried.commit_lsn], batch.int64(begins, 1)])
        times = np.concatenate([[carried.commit_time], batch.int64(begins, 9) + _POSTGRES_EPOCH])
        xids = np.concatenate([[carried.xid], batch.uint32(begins, 17)])
        transaction = np.cumsum(batch.kind == ord("B"))
        self._check_commits(batch, lsns, transaction)
        origins = self._origins(batch, carried, len(lsns), transaction)
        self.transactions += len(begins)
        self._last_lsn = int(lsns[-1])
        commits = batch.where(b"C")
        last_begin = int(begins[-1]) if len(begins) else -1
        if (len(commits) and commits[-1] > last_begin) or (not len(begins) and self._open is None):
            self._open = None
        else:
            sofar = batch.count - last_begin - 1 if len(begins) else carried.messages + batch.count
            self._open = _Transaction(int(lsns[-1]), int(times[-1]), int(xids[-1]), origins[-1].as_py(), sofar)
        return lsns, times, xids, origins

    def _check_commits(self, batch: MessageBatch, lsns: Ints, transaction: Ints) -> None:
        outside = (lsns[1:] < self.window.lo) | (lsns[1:] >= self.window.hi)
        if outside.any():
            raise self._error(int(lsns[1:][outside][0]), "the transaction is not of this window")
        if (np.diff(lsns) <= 0).any():
            raise self._error(int(lsns[1:][np.diff(lsns) <= 0][0]), "the transaction comes out of commit order")
        commits = batch.where(b"C")
        wrong = batch.int64(commits, 2) != lsns[transaction[commits]]
        if wrong.any():
            raise self._error(int(lsns[transaction[commits][wrong][0]]), "Begin and Commit name different LSNs")

    def _origins(self, batch: MessageBatch, carried: _Transaction, size: int, transaction: Ints) -> pa.Array:
        at = batch.where(b"O")
        index = np.full(size + 1, 0, np.int64)  # into: null, carried, the origins of this batch
        index[1] = 1
        index[transaction[at] + 1] = np.arange(len(at)) + 2
        try:
            names = batch.origin_names(at)
        except pa.ArrowInvalid:
            raise self._error(self._open_lsn, "an origin's name is not UTF-8") from None
        return pa.concat_arrays([pa.array([None, carried.origin], pa.string()), names]).take(pa.array(index))

    def _relids(self, batch: MessageBatch, commit_lsn: Ints) -> tuple[Ints, Ints]:
        """Per message its relid (0 where it has none, or several), and how many rows it becomes."""
        relid = np.zeros(batch.count, np.int64)
        named = batch.where(_CHANGES + b"R")
        relid[named] = batch.uint32(named, 1)
        repeats = np.ones(batch.count, np.int64)
        repeats[batch.where(b"BCO")] = 0
        truncates = batch.where(b"T")
        repeats[truncates] = batch.uint32(truncates, 1)
        wrong = batch.length[truncates] != 6 + 4 * repeats[truncates]
        if wrong.any():
            raise self._error(int(commit_lsn[truncates[wrong][0]]), "a Truncate message has the wrong length")
        return relid, repeats

    def _see_relations(self, batch: MessageBatch, commit_lsn: Ints, ordinal: Ints) -> None:
        known = {(seen.relid, seen.version) for seen in self.relations}
        for at in batch.where(b"R"):  # one per relation and window, and one per DDL
            message = batch.messages[int(at)].as_py()
            relid, version = int.from_bytes(message[1:5], "big"), fingerprint(message)
            if (relid, version) not in known:
                known.add((relid, version))
                names = self._names(message, int(commit_lsn[at]))
                self.relations.append(RelationSeen(relid, version, int(commit_lsn[at]), int(ordinal[at]), *names))

    def _names(self, relation_message: builtins.bytes, commit_lsn: int) -> tuple[str, str]:
        try:
            nspname, relname, _ = relation_message[5:].split(b"\0", 2)
            return nspname.decode() or "pg_catalog", relname.decode()
        except ValueError:
            raise self._error(commit_lsn, "a Relation message names no table") from None

    def _version_in_force(self, batch: MessageBatch, relid: Ints, commit_lsn: Ints) -> Ints:
        """Per message the version of the last Relation message of its relid; -1 where it has none."""
        at = batch.where(b"R")
        fresh = np.array([fingerprint(batch.messages[int(i)].as_py()) for i in at], np.int64)
        carried_relid = np.fromiter(self._versions.keys(), np.int64, len(self._versions))
        carried = np.fromiter(self._versions.values(), np.int64, len(self._versions))
        # a key that sorts by relid, then by place; what is carried stands before the batch's first message
        keys = np.concatenate([carried_relid << 31, (relid[at] << 31) + at + 1])
        order = np.argsort(keys)
        keys, versions = keys[order], np.concatenate([carried, fresh])[order]
        version = np.full(batch.count, -1, np.int64)
        wanted = batch.where(_CHANGES + b"R")
        found = np.searchsorted(keys, (relid[wanted] << 31) + wanted + 1, side="right") - 1
        missing = found < 0
        missing[~missing] = keys[found[~missing]] >> 31 != relid[wanted[~missing]]
        if missing.any():
            at_missing = wanted[int(np.argmax(missing))]
            what = f"relation {relid[at_missing]} was not announced before its change"
            raise self._error(int(commit_lsn[at_missing]), what)
        version[wanted] = versions[found]
        self._versions.update(zip(relid[at].tolist(), fresh.tolist(), strict=True))
        return version

    def _count(self, batch: MessageBatch, kind: npt.NDArray[np.uint8], relid: Ints, length: Ints) -> None:
        self.messages += batch.count
        self.bytes += int(batch.length.sum())
        changes = np.isin(kind, np.frombuffer(_CHANGES + b"T", np.uint8))
        counted = pc.value_counts(pa.array(relid[changes] << 8 | kind[changes]))
        self._counts.update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
        relids, place = np.unique(relid[changes], return_inverse=True)
        sizes = np.bincount(place, weights=length[changes]).astype(np.int64)
        self._sizes.update(dict(zip(relids.tolist(), sizes.tolist(), strict=True)))

    @property
    def _open_lsn(self) -> int:
        return self._open.commit_lsn if self._open else self.window.lo

    def _error(self, lsn: int, what: str) -> DecodeError:
        return DecodeError(
            f"window {self.ordinal} {self.window}, commit LSN {Lsn(lsn)}: {what}",
            hint="the slot has not moved; a newer version of postgres-cdc may know more",
        )


def _letters(kind: npt.NDArray[np.uint8]) -> pa.Array:
    """One-character strings, without a Python object each."""
    offsets = pa.py_buffer(np.arange(len(kind) + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), len(kind), [None, offsets, pa.py_buffer(np.ascontiguousarray(kind))])
