"""Replaces masked values in pgoutput's messages with hashes, before any message is landed or spooled.

Relation messages are rewritten to say that a masked column is text, so readers of the log need not know of masks.
Messages of other tables stay as they are, byte for byte. Vectorised over the changes of each relation version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.message_batch import CONTROL, KNOWN, MessageBatch, of_kinds
from spark_jobs.decode.columnar import decode_changes
from spark_jobs.decode.masked_text import with_hashes
from spark_jobs.decode.tuple_vectors import BINARY, TEXT
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation, fingerprint
from spark_jobs.schema.masked_facts import NO_TYPMOD, TEXT_OID

Ints = npt.NDArray[np.int64]

_TYPE = TEXT_OID.to_bytes(4, "big") + NO_TYPMOD.to_bytes(4, "big", signed=True)
_WAY_OUT = (
    "nothing of the window is kept; if the error persists, drop the slot with pg_drop_replication_slot, and"
    " `postgres-cdc recover` reads the tables again"
)


@dataclass(frozen=True)
class _MaskedVersion:
    relation: Relation
    places: tuple[int, ...]


class Masking:
    """``place`` returns the window and LSN for error messages.

    A relation version that can neither be masked nor kept as it is raises an error only at the first change that needs
    it: the plugin also sends Relation messages of partitions whose rows come under their root's name.
    """

    def __init__(self, tables: MaskedTables, place: Callable[[], str]) -> None:
        self._tables, self._place = tables, place
        # by the version of the rewritten Relation message
        self._versions: dict[int, _MaskedVersion] = {}
        self._refused: dict[int, str] = {}

    def relations(self, batch: MessageBatch, with_xid: npt.NDArray[np.bool_] | None = None) -> MessageBatch:
        """The batch with its Relation messages rewritten: masked columns are text. The same batch if there are none.

        ``with_xid``: which messages have an xid after their type. Raises DecodeError for a message of unknown type,
        because it may hold masked values.
        """
        self._require_known(batch)
        at = batch.where(b"R")
        masked: dict[int, bytes] = {}
        for index in at.tolist():  # one per relation and window, and one per DDL
            xid_bytes = 4 if with_xid is not None and with_xid[index] else 0
            message = batch.messages[index].as_py()
            plain = message[:1] + message[1 + xid_bytes :]
            rewritten = self._relation(plain)
            if rewritten is not None:
                masked[index] = message[: 1 + xid_bytes] + rewritten[1:]
        if not masked:
            return batch
        parts, done = [], 0
        for index, message in masked.items():
            parts += [batch.messages[done:index], pa.array([message], pa.binary())]
            done = index + 1
        return MessageBatch.of(pa.concat_arrays([*parts, batch.messages[done:]]))

    def changes(self, messages: pa.Array, versions: Ints) -> pa.Array:
        """The messages, in protocol 1's form, with hashes in place of masked values. ``versions``: for each message the
        version of its rewritten Relation message, or -1. Raises DecodeError when it is in doubt which columns are
        masked, or a change is not understood."""
        if refused := self._refused.keys() & set(np.unique(versions).tolist()):
            raise self._error(self._refused[min(refused)])
        known = np.fromiter(self._versions, np.int64, len(self._versions))
        present = np.intersect1d(versions, known)
        if not len(present):
            return messages
        batch = MessageBatch.of(messages.cast(pa.binary()))
        spans = [self._values(batch, np.flatnonzero(versions == version), int(version)) for version in present]
        starts, lengths = (np.concatenate(vectors) for vectors in zip(*spans, strict=True))
        order = np.argsort(starts)
        return with_hashes(batch.messages, starts[order], lengths[order], self._tables.mask)

    def _relation(self, message: bytes) -> bytes | None:
        """The rewritten Relation message; None if it is left unchanged."""
        try:
            relation = read_message(message)
        except LogicalRepError as error:
            raise self._error(f"a Relation message is not understood: {error}") from None
        if not isinstance(relation, Relation):
            raise self._error("a Relation message is not understood")
        if why := self._tables.why_refused(relation):
            self._refused[fingerprint(message)] = f"{relation.nspname}.{relation.relname} is not read: {why}"
            return None
        places = self._tables.places(relation)
        if not places:
            return None
        rewritten = _as_text(message, len(relation.columns), places)
        self._versions[fingerprint(rewritten)] = _MaskedVersion(relation, places)
        return rewritten

    def _values(self, batch: MessageBatch, rows: Ints, version: int) -> tuple[Ints, Ints]:
        """Start and length of the masked values of these changes in the batch's buffer."""
        masked = self._versions[version]
        name, begins = f"{masked.relation.nspname}.{masked.relation.relname}", batch.start[rows]
        try:
            ends = begins + batch.length[rows]
            changes = decode_changes(batch.buffer, begins, ends, masked.relation, lambda row: Position(Lsn(0), row))
        except DecodeError:  # raised again with the place, which decode_changes was not given
            raise self._error(f"a change of {name}, which has masked columns, is not understood") from None
        places = list(masked.places)
        starts, lengths = [], []
        for tuples in (changes.new, changes.old):
            kinds = tuples.kinds[places]
            if (kinds == BINARY).any():
                raise self._error(f"a masked value of {name} was sent in binary")
            starts.append(tuples.starts[places][kinds == TEXT])
            lengths.append(tuples.lengths[places][kinds == TEXT])
        return np.concatenate(starts), np.concatenate(lengths).astype(np.int64)

    def _require_known(self, batch: MessageBatch) -> None:
        unknown = ~of_kinds(batch.kind, KNOWN + CONTROL)
        if unknown.any():
            kind = chr(batch.kind[int(np.argmax(unknown))])
            raise self._error(f"the message type {kind!r} is not known, and it may hold masked values")

    def _error(self, what: str) -> DecodeError:
        return DecodeError(f"{self._place()}: {what}", hint=_WAY_OUT)


def _as_text(message: bytes, columns: int, places: tuple[int, ...]) -> bytes:
    """The Relation message, already parsed without error, with text as the type of the columns at ``places``."""
    at = message.index(b"\0", message.index(b"\0", 5) + 1) + 4  # after both names, the identity and the count
    parts = [message[:at]]
    for place in range(columns):
        end = message.index(b"\0", at + 1) + 1
        parts += [message[at:end], _TYPE if place in places else message[end : end + 8]]
        at = end + 8
    return b"".join(parts)
