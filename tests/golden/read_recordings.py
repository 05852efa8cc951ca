"""Recordings through the object decoders: ``reference.assembly`` and ``logicalrep.test_decoding``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import get_args

from spark_jobs.logicalrep.messages import Delete, Insert, LogicalMessage, Truncate, Type, Update
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.logicalrep.test_decoding.changes import row_change
from spark_jobs.logicalrep.test_decoding.lines import (
    BeginLine,
    CommitLine,
    Line,
    MessageLine,
    Phase,
    RowLine,
    TruncateLine,
    TwoPhaseLine,
)
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from spark_jobs.qualified_name import QualifiedName
from tests.golden.golden_file import ExpectedChange, ExpectedRelation, Recording
from tests.golden.observed import Observed, expected_of
from tests.reference.assembly import assemble
from tests.reference.transaction import LooseMessage, PlacedMessage, ReadOptions, Streaming

_STREAMING = dict(zip(("off", "on", "parallel"), get_args(Streaming), strict=True))


def read_options(recording: Recording) -> ReadOptions:
    return ReadOptions(
        proto_version=int(recording.option("proto_version") or 1),
        streaming=_STREAMING[recording.option("streaming") or "off"],
        two_phase=recording.two_phase_slot or recording.option("two_phase") == "on",
    )


def observe_pgoutput(recording: Recording) -> list[Observed]:
    """The recording as ``reference.assembly`` reads it."""
    relations: dict[int, Relation] = {}
    observed: list[Observed] = []
    transactions = 0
    for item in assemble([row.data for row in recording.rows], read_options(recording)):
        if isinstance(item, LooseMessage):
            observed.append(_message(None, item.message))
            continue
        transactions += 1
        for placed in item.changes:
            observed += _observed(placed, transactions, item.origin, relations)
    return observed


def _observed(
    placed: PlacedMessage, transaction: int, origin: str | None, relations: dict[int, Relation]
) -> Iterator[Observed]:
    message = placed.message
    if isinstance(message, Relation):
        relations[message.relid] = message
    elif isinstance(message, LogicalMessage):
        yield _message(transaction, message)
    elif isinstance(message, Truncate):
        for relid in message.relids:
            yield Observed(transaction, "T", origin, _name(relations[relid]), relations[relid])
    elif isinstance(message, (Insert, Update, Delete)):
        relation = relations[message.relid]
        yield Observed(transaction, chr(placed.data[0]), origin, _name(relation), relation, message)
    else:
        assert isinstance(message, Type)


def _message(transaction: int | None, message: LogicalMessage) -> Observed:
    return Observed(transaction, "M", prefix=message.prefix, content=message.content.decode())


def _name(relation: Relation) -> QualifiedName:
    return QualifiedName(relation.nspname, relation.relname)


@dataclass
class _Lines:
    """Lines of test_decoding to transactions; a prepared one waits for its COMMIT PREPARED.

    ``relations``: per change that is due, the table as the catalogue had it then.
    """

    relations: list[ExpectedChange]
    observed: list[Observed] = field(default_factory=list)
    open: list[tuple[Line, bytes]] | None = None
    prepared: dict[str, list[tuple[Line, bytes]]] = field(default_factory=dict)
    transactions: int = 0

    def take(self, line: Line, data: bytes) -> None:
        match line:
            case BeginLine():
                self.open = []
            case TwoPhaseLine(phase=Phase.PREPARE):
                assert self.open is not None
                self.prepared[line.gid], self.open = self.open, None
            case TwoPhaseLine(phase=Phase.ROLLBACK):
                del self.prepared[line.gid]
            case TwoPhaseLine(phase=Phase.COMMIT):
                self.commit(self.prepared.pop(line.gid))
            case CommitLine():
                assert self.open is not None
                self.commit(self.open)
                self.open = None
            case MessageLine(transactional=False):
                self.observed.append(_message_line(None, line))
            case _:
                assert self.open is not None
                self.open.append((line, data))

    def commit(self, lines: list[tuple[Line, bytes]]) -> None:
        known = [(line, data) for line, data in lines if not (isinstance(line, RowLine) and "filler" in line.table)]
        self.transactions += bool(known)
        for line, _ in known:
            self.observed += self.line(line)

    def line(self, line: Line) -> Iterator[Observed]:
        match line:
            case RowLine():
                table = QualifiedName(*line.table)
                relation = self.relation(table)
                change = row_change(line, relation) if line.has_tuple_data else None
                yield Observed(self.transactions, line.kind, None, table, relation, change)
            case TruncateLine():
                for nspname, relname in line.tables:
                    if relname != "unpublished":
                        yield Observed(self.transactions, "T", None, QualifiedName(nspname, relname))
            case MessageLine():
                yield _message_line(self.transactions, line)
            case _:
                raise AssertionError(f"{line} in a transaction")

    def relation(self, table: QualifiedName) -> Relation:
        """What is due next, as a Relation message would tell it."""
        due = self.relations[len([each for each in self.observed if each.kind in "IUD"])]
        assert due.table is not None
        assert QualifiedName.parse(due.table) == table
        assert due.relation is not None
        return relation_of(due.relation, table)


def observe_test_decoding(recording: Recording, changes: tuple[ExpectedChange, ...]) -> list[Observed]:
    """The recording as ``logicalrep.test_decoding`` reads it, with the catalogue as ``changes`` have it."""
    lines = _Lines([each for each in expected_of(recording, changes) if each.kind in "IUD"])
    for row in recording.rows:
        lines.take(read_line(row.data), row.data)
    return lines.observed


def relation_of(expected: ExpectedRelation, table: QualifiedName, relid: int = 16384) -> Relation:
    """The Relation message that pgoutput would send."""
    columns = tuple(RelationColumn(*column) for column in expected.columns)
    return Relation(relid, table.nspname, table.relname, expected.relreplident, columns)


def _message_line(transaction: int | None, line: MessageLine) -> Observed:
    return Observed(transaction, "M", prefix=line.prefix, content=line.content.decode())
