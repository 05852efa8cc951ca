"""A transaction that has not committed yet: its changes so far, each with the Relation messages in force for it.
Part of ``assembly``."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_jobs.logicalrep.messages import DataMessage, LogicalMessage, Origin, Truncate, Type
from spark_jobs.logicalrep.relation import Relation
from tests.reference.errors import MessageOrderError, UnannouncedRelationError


@dataclass(frozen=True, slots=True)
class Announcement:
    """One Relation message and the Type messages sent for it."""

    types: tuple[tuple[bytes, Type], ...]
    relation: tuple[bytes, Relation]

    def messages(self) -> list[tuple[bytes, DataMessage]]:
        return [*self.types, self.relation]


@dataclass(frozen=True, slots=True)
class PendingChange:
    subxid: int
    data: bytes
    message: DataMessage
    announced: tuple[tuple[int, Announcement], ...]


@dataclass(slots=True)
class PendingTransaction:
    """A transaction whose end has not been read. ``announced``: the last announcement of each relation to arrive, in
    this or any other transaction."""

    xid: int
    announced: dict[int, Announcement]
    gid: str | None = None
    origin: Origin | None = None
    changes: list[PendingChange] = field(default_factory=list)
    types: list[tuple[bytes, Type]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    ambiguous: int | None = None  # the aborted subtransaction that may have emitted one of the messages

    def add(self, subxid: int, data: bytes, message: DataMessage) -> None:
        if subxid in self.aborted:
            raise MessageOrderError(f"subtransaction {subxid} of transaction {self.xid} goes on after its abort")
        if isinstance(message, Type):
            self.types.append((data, message))
            return
        if isinstance(message, Relation):
            self.announced[message.relid] = Announcement(tuple(self.types), (data, message))
        else:
            self._add_change(subxid, data, message)
        self.types.clear()

    def _add_change(self, subxid: int, data: bytes, message: DataMessage) -> None:
        if isinstance(message, LogicalMessage) and not message.transactional:
            raise MessageOrderError(f"a Message that is not transactional stands inside transaction {self.xid}")
        announced = []
        for relid in _relids(message):
            if relid not in self.announced:
                raise UnannouncedRelationError(f"transaction {self.xid} changes relation {relid}, not announced before")
            announced.append((relid, self.announced[relid]))
        self.changes.append(PendingChange(subxid, data, message, tuple(announced)))

    def abort(self, subxid: int) -> None:
        """Drop the subtransaction's changes. Its own subtransactions each have an A of their own."""
        if any(isinstance(change.message, LogicalMessage) for change in self.changes):
            self.ambiguous = subxid
        self.aborted.add(subxid)
        self.changes = [change for change in self.changes if change.subxid != subxid]


def _relids(message: DataMessage) -> tuple[int, ...]:
    if isinstance(message, Truncate):
        return message.relids
    return () if isinstance(message, (LogicalMessage, Type, Relation)) else (message.relid,)
