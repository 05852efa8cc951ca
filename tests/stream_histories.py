"""Histories of interleaved transactions, with savepoints, rollbacks, prepared and unfinished ones: the strategy.

``tests.streams`` says what a server sends of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    Change,
    DataMessage,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Truncate,
    TupleData,
    Type,
    Update,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn


@dataclass(frozen=True)
class Shape:
    """What a relation looks like at one moment: its Relation message, and the Type message it needs."""

    relation: Relation
    type: Type | None


@dataclass(frozen=True)
class Wrote:
    xid: int
    subxid: int
    message: DataMessage
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class RolledBackTo:
    """``subxids``: innermost first, as the server aborts them."""

    xid: int
    subxids: tuple[int, ...]


@dataclass(frozen=True)
class MemoryFull:
    """logical_decoding_work_mem is reached: with streaming, a block of this transaction is sent."""

    xid: int


@dataclass(frozen=True)
class Prepared:
    xid: int


@dataclass(frozen=True)
class Committed:
    """COMMIT, or COMMIT PREPARED after Prepared."""

    xid: int


@dataclass(frozen=True)
class Aborted:
    """ROLLBACK, or ROLLBACK PREPARED after Prepared."""

    xid: int


@dataclass(frozen=True)
class Emitted:
    """A Message that is not transactional."""

    message: LogicalMessage


@dataclass(frozen=True)
class Invalidated:
    """The server forgets that it announced this relation."""

    relid: int


Event = Wrote | RolledBackTo | MemoryFull | Prepared | Committed | Aborted | Emitted | Invalidated


@dataclass(frozen=True)
class History:
    """Events in WAL order; ``origins`` by xid. A value of a row tells nothing: it is the place that is tested."""

    events: tuple[Event, ...]
    origins: tuple[tuple[int, Origin], ...]


def _shape(relid: int, width: int) -> Shape:
    columns = tuple(RelationColumn(f"c{at}", 25 if at else 90001, -1, at == 0) for at in range(width))
    return Shape(Relation(relid, "public", f"t{relid}", "d", columns), Type(90001, "public", "mood"))


_SHAPES = [[_shape(relid, width) for width in (1, 2)] for relid in (16384, 16385)]


@dataclass(frozen=True)
class _Step:
    """One line of a program. What makes no sense where it stands does nothing."""

    session: int
    action: str
    relation: int
    value: int


# weighted so that many transactions have what is hard; a detour is a savepoint, a write, a block, and the way back;
# "set aside" is a write, a block, and PREPARE TRANSACTION; "at once" is a transaction of one write
_ACTIONS = (
    *(["write"] * 8 + ["truncate", "emit"] + ["flush"] * 4 + ["savepoint"] * 3 + ["release"] + ["rollback to"] * 3),
    *(
        ["detour"] * 4
        + ["prepare"]
        + ["set aside"] * 2
        + ["at once"] * 3
        + ["commit"] * 4
        + ["abort", "loose", "alter", "invalidate"]
    ),
)
_STEPS = st.builds(
    _Step, st.integers(0, 2), st.sampled_from(_ACTIONS), st.integers(0, len(_SHAPES) - 1), st.integers(0, 9)
)


def histories() -> st.SearchStrategy[History]:
    """Some transactions, at most three at a time; those without an end stay open."""
    programs = st.lists(_STEPS, max_size=10) | st.lists(_STEPS, min_size=25, max_size=80)
    return programs.map(_run)


@dataclass
class _Session:
    xid: int
    emits: bool  # Messages, and then no rollback to a savepoint: in a stream the two cannot be told apart
    savepoints: list[int] = field(default_factory=list)
    prepared: bool = False


def _run(program: list[_Step]) -> History:
    run = _Run()
    for step in program:
        run.step(step)
    return History(tuple(run.events), tuple(run.origins))


@dataclass
class _Run:
    events: list[Event] = field(default_factory=list)
    sessions: dict[int, _Session] = field(default_factory=dict)
    origins: list[tuple[int, Origin]] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=lambda: [shapes[0] for shapes in _SHAPES])
    last_xid: int = 700

    def step(self, step: _Step) -> None:
        if step.action == "loose":
            self.events.append(Emitted(LogicalMessage(False, Lsn(1), "p", b"%d" % step.value)))
        elif step.action == "alter":
            self.shapes[step.relation] = _SHAPES[step.relation][step.value % 2]
        elif step.action == "invalidate":
            self.events.append(Invalidated(self.shapes[step.relation].relation.relid))
        elif step.action == "at once":
            session = _Session(self._xid(), emits=False)
            self._write(session, step)
            self.events.append(Committed(session.xid))
        elif step.session in self.sessions:
            self._continue(self.sessions[step.session], step)
        else:
            self._begin(step)

    def _xid(self) -> int:
        self.last_xid += 1
        return self.last_xid

    def _begin(self, step: _Step) -> None:
        session = self.sessions[step.session] = _Session(self._xid(), emits=step.value < 2)
        if step.value % 2:
            self.origins.append((session.xid, Origin(Lsn(step.value), "elsewhere")))
        self._continue(session, step)

    def _continue(self, session: _Session, step: _Step) -> None:
        match step.action:
            case "commit" | "abort":
                del self.sessions[step.session]
                self.events.append((Committed if step.action == "commit" else Aborted)(session.xid))
            case _ if session.prepared:
                pass
            case "prepare":
                self._prepare(session)
            case "set aside":
                self._write(session, step)
                self.events.append(MemoryFull(session.xid))
                self._prepare(session)
            case "flush":
                self.events.append(MemoryFull(session.xid))
            case "savepoint":
                session.savepoints.append(self._xid())
            case "release":
                del session.savepoints[-1:]
            case "rollback to":
                self._roll_back(session, step.value)
            case "detour":
                session.savepoints.append(self._xid())
                self._write(session, step)
                self.events.append(MemoryFull(session.xid))
                self._roll_back(session, -1)
            case _:
                self._write(session, step)

    def _prepare(self, session: _Session) -> None:
        session.prepared = True
        self.events.append(Prepared(session.xid))

    def _roll_back(self, session: _Session, depth: int) -> None:
        if session.savepoints and not session.emits:
            undone = session.savepoints[depth % len(session.savepoints) :]
            self.events.append(RolledBackTo(session.xid, tuple(reversed(undone))))
            del session.savepoints[depth % len(session.savepoints) :]

    def _write(self, session: _Session, step: _Step) -> None:
        subxid = session.savepoints[-1] if session.savepoints else session.xid
        shape = self.shapes[step.relation]
        if step.action == "emit" and session.emits:
            message = LogicalMessage(True, Lsn(2), "p", b"%d" % step.value)
            self.events.append(Wrote(session.xid, subxid, message, ()))
        elif step.action == "truncate":
            relids = tuple(shape.relation.relid for shape in self.shapes)
            self.events.append(Wrote(session.xid, subxid, Truncate(relids, False, False), tuple(self.shapes)))
        else:
            self.events.append(Wrote(session.xid, subxid, _change(shape.relation, step.value), (shape,)))


def _change(relation: Relation, value: int) -> Change:
    row: TupleData = (b"%d" % value, None)[: len(relation.columns)]
    match value % 5:
        case 0:
            return Update(relation.relid, None, None, row)
        case 1:
            return Update(relation.relid, row, None, row)
        case 2:
            return Delete(relation.relid, row, None)
        case 3:
            return Delete(relation.relid, None, row)
        case _:
            return Insert(relation.relid, row)
