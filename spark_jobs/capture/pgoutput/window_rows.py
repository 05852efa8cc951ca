"""Turns pgoutput's messages into rows of the change log, each with its place in the total order.

Vectorised: no Python runs per message. Batches may be cut anywhere; the open transaction and the relation versions in
force carry over to the next batch. Streamed and prepared transactions go through ``assembly`` first.
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from string import ascii_letters

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.capture.message_batch import CHANGES, CONTROL, KNOWN, ROW_CHANGES, Flags, MessageBatch, of_kinds
from spark_jobs.capture.pgoutput.transaction_places import Places, TransactionPlaces
from spark_jobs.capture.pgoutput.unknown_messages import UnknownMessages
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.relation_versions import RelationSeen, relation_names, versions_in_force
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import RelationCounts, UnknownMessage
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.relation import fingerprint

Ints = npt.NDArray[np.int64]

_UNIX_US = pa.timestamp("us", tz="UTC")
_LSN_BITS = (1 << 64) - 1  # the columns are signed: a damaged LSN may read as negative


class WindowRows:
    """Turns one window's messages into rows. Its counts are complete once ``rows`` is exhausted."""

    def __init__(self, ordinal: int, window: Window) -> None:
        self.ordinal, self.window = ordinal, window
        self.messages = self.bytes = self.logical_messages = 0
        self.relations: list[RelationSeen] = []
        self._places = TransactionPlaces(window, self._error)
        self._unknown = UnknownMessages()
        self._versions: dict[int, int] = {}
        self._counts: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()

    @property
    def transactions(self) -> int:
        return self._places.transactions

    @property
    def unknown(self) -> tuple[UnknownMessage, ...]:
        return self._unknown.messages

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of protocol 1's messages (one binary column, ``data``) into batches of CHANGE_LOG_SCHEMA.

        Begin, Commit and Origin become columns; all other messages are kept byte for byte. A Truncate becomes one row
        per table. Raises DecodeError, which names window and LSN.
        """
        for batch in batches:
            if batch.num_rows:
                yield self._batch(MessageBatch.of(batch.column(0)))
        if self._places.open is not None:
            raise self._error(self._places.lsn, "the transaction has no Commit")

    def relation_counts(self) -> tuple[RelationCounts, ...]:
        """The counts, ordered by relid. The plugin announces truncated tables too, so the name is always known."""
        names = {relation.relid: (relation.nspname, relation.relname) for relation in self.relations}
        relids = {key >> 8 for key in self._counts} | {relid for message in self.unknown for relid in message.relids}
        return tuple(
            RelationCounts(
                relid,
                *names.get(relid, ("", "")),
                ChangeCounts(*(self._counts[relid << 8 | kind] for kind in CHANGES)),
                self._sizes[relid],
            )
            for relid in sorted(relids)
        )

    def _batch(self, batch: MessageBatch) -> pa.RecordBatch:
        unknown = self._check_kinds(batch)
        was_open = self._places.open is not None
        places = self._places.of(batch, unknown)
        commit_lsn, xid = places.commit_lsns[places.transaction], places.xids[places.transaction]
        loose = batch.loose_messages
        commit_lsn[loose], xid[places.loose] = batch.int64(loose, 2), 0
        commit_lsn = np.maximum(commit_lsn, int(self.window.lo))  # an unknown message before the first transaction
        relid, repeats = self._relids(batch, commit_lsn)
        self._see_relations(batch, commit_lsn, places.ordinal)
        version = self._version_in_force(batch, relid, commit_lsn)

        rows = np.repeat(np.arange(batch.count), repeats)
        relid, no_relid = batch.exploded_relids(rows, repeats, relid)
        kind = batch.kind[rows]
        changes = of_kinds(kind, CHANGES)
        self._count(batch, kind[changes], relid[changes], batch.length[rows[changes]])
        self._see_unknown(batch, places, unknown, rows[changes], relid[changes], was_open)
        columns = [
            pa.array(np.full(len(rows), self.ordinal)),
            pa.array(commit_lsn[rows]),
            pa.array(places.ordinal[rows]),
            pa.array(xid[rows]),
            pa.array(places.commit_times[places.transaction][rows], mask=places.loose[rows]).cast(_UNIX_US),
            places.take_origin(places.origins, rows),
            places.take_origin(places.origin_lsns, rows),
            _letters(kind),
            pa.array(relid, mask=no_relid),
            pa.array(version[rows], mask=version[rows] < 0),
            batch.messages.take(pa.array(rows)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=CHANGE_LOG_SCHEMA)

    def _check_kinds(self, batch: MessageBatch) -> Flags:
        """Which messages are of an unknown type. Raises DecodeError for what cannot be a message at all."""
        short = batch.too_short()
        if len(short):
            raise self._error(self._places.lsn, f"a {chr(batch.kind[short[0]])!r} message has the wrong length")
        known, possible = np.zeros(256, bool), np.zeros(256, bool)
        known[list(KNOWN)] = True
        possible[list(ascii_letters.encode())] = True
        possible[list(CONTROL)] = False
        unknown: Flags = ~known[batch.kind]
        if unknown.any() and not possible[batch.kind].all():
            at = int(np.argmin(possible[batch.kind]))
            raise self._error(self._places.lsn, f"the message type {chr(batch.kind[at])!r} is not known")
        return unknown

    def _relids(self, batch: MessageBatch, commit_lsn: Ints) -> tuple[Ints, Ints]:
        """For each message its relid (0 where it has none or several), and how many rows it becomes."""
        relid = np.zeros(batch.count, np.int64)
        places = batch.where(ROW_CHANGES + b"R")
        relid[places] = batch.uint32(places, 1)
        repeats = np.ones(batch.count, np.int64)
        repeats[batch.where(b"BCO")] = 0
        truncates = batch.where(b"T")
        repeats[truncates] = batch.uint32(truncates, 1)
        wrong = batch.length[truncates] != 6 + 4 * repeats[truncates]
        if wrong.any():
            raise self._error(int(commit_lsn[truncates[wrong][0]]), "a Truncate message has the wrong length")
        return relid, repeats

    def _see_relations(self, batch: MessageBatch, commit_lsn: Ints, ordinal: Ints) -> None:
        known = {(relation.relid, relation.version) for relation in self.relations}
        for at in batch.where(b"R"):  # one per relation and window, and one per DDL
            message = batch.messages[int(at)].as_py()
            relid, version = int.from_bytes(message[1:5], "big"), fingerprint(message)
            if (relid, version) not in known:
                known.add((relid, version))
                try:
                    names = relation_names(message)
                except ValueError:
                    raise self._error(int(commit_lsn[at]), "a Relation message names no table") from None
                place = int(commit_lsn[at]), int(ordinal[at])
                self.relations.append(RelationSeen(relid, version, *place, *names, message))

    def _version_in_force(self, batch: MessageBatch, relid: Ints, commit_lsn: Ints) -> Ints:
        """For each message the version of the last Relation message of its relid; -1 where it has no relid."""
        at, places = batch.where(b"R"), batch.where(ROW_CHANGES + b"R")
        fresh = np.array([fingerprint(batch.messages[int(i)].as_py()) for i in at], np.int64)
        in_force = versions_in_force(self._versions, at, relid[at], fresh, places, relid[places])
        if (in_force < 0).any():
            missing = places[int(np.argmax(in_force < 0))]
            what = f"relation {relid[missing]} was not announced before its change"
            raise self._error(int(commit_lsn[missing]), what)
        version = np.full(batch.count, -1, np.int64)
        version[places] = in_force
        self._versions.update(zip(relid[at].tolist(), fresh.tolist(), strict=True))
        return version

    def _see_unknown(
        self, batch: MessageBatch, places: Places, unknown: Flags, rows: Ints, relid: Ints, was_open: bool
    ) -> None:
        """Note the messages of unknown type; ``rows`` and ``relid`` are of the changes. Python runs once per
        transaction that has such a message, and for those that were open before this batch or still are after it."""
        for at in np.flatnonzero(unknown & places.loose):
            lsn = max(int(places.commit_lsns[places.transaction[at]]), int(self.window.lo))
            self._unknown.outside(chr(batch.kind[at]), lsn)
        bound = np.flatnonzero(unknown & ~places.loose)
        last = len(places.commit_lsns) - 1
        transactions = {*np.unique(places.transaction[bound]).tolist(), *([0] if was_open else [])}
        transactions |= {last} if self._places.open is not None else set()
        for transaction in sorted(transactions):
            mine = bound[places.transaction[bound] == transaction]
            room = batch.length[mine] > 4
            relids = np.zeros(len(mine), np.int64)
            relids[room] = batch.uint32(mine[room], 1)
            changed = relid[places.transaction[rows] == transaction]
            self._unknown.in_transaction(batch.kind[mine].astype(np.int64), relids, places.ordinal[mine], changed)
            if transaction != last or self._places.open is None:
                self._unknown.end(int(places.commit_lsns[transaction]), set(self._versions))

    def _count(self, batch: MessageBatch, kind: npt.NDArray[np.uint8], relid: Ints, length: Ints) -> None:
        self.messages += batch.count
        self.logical_messages += len(batch.where(b"M"))
        self.bytes += int(batch.length.sum())
        counted = pc.value_counts(pa.array(relid << 8 | kind))
        self._counts.update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
        relids, place = np.unique(relid, return_inverse=True)
        sizes = np.bincount(place, weights=length).astype(np.int64)
        self._sizes.update(dict(zip(relids.tolist(), sizes.tolist(), strict=True)))

    def _error(self, lsn: int, what: str) -> DecodeError:
        return DecodeError(
            f"window {self.ordinal} {self.window}, commit LSN {Lsn(lsn & _LSN_BITS)}: {what}",
            hint="the slot has not moved; a newer version of postgres-cdc may know more",
        )


def _letters(kind: npt.NDArray[np.uint8]) -> pa.Array:
    """The bytes as an array of one-character strings, without a Python object for each."""
    offsets = pa.py_buffer(np.arange(len(kind) + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), len(kind), [None, offsets, pa.py_buffer(np.ascontiguousarray(kind))])
