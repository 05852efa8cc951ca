"""One mixed workload on several tables: what a busy database does, and what it rarely does, in a fixed order.

Four sessions take turns, so that their transactions overlap; a seed decides each turn, so the same seed gives the same
history on every server. Sessions keep to rows of their own and never wait for each other. All of it: large
transactions, savepoints released and rolled back (nested), rollbacks, TRUNCATE in mid-transaction, keys that move and
swap, TOASTed values left alone, prepared transactions committed and rolled back by and by and one left open, messages
inside and outside of transactions, transactions from a replication origin.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from tests.fixtures.servers import Database

Connection = psycopg.Connection[tuple[object, ...]]


def _statements(file: str, end: str) -> list[str]:
    lines = Path(__file__).with_name(file).read_text().splitlines(keepends=True)
    return [text for text in "".join(line for line in lines if not line.startswith("-- ")).split(end) if text.strip()]


TABLES = (
    "public.account",
    "public.line",
    "public.whole",
    "public.coded",
    "public.part",
    'public."Odd ""Table"',
    "public.kinds",
    "public.scrap",
    "public.scrap_line",
)
SCHEMA = tuple(_statements("schema.sql", ";\n"))
_SESSIONS = 4
_ORIGIN_SESSION, _TRUNCATING_SESSION = 3, 0
# multiples of 14: neighbours that swap keys are of one session and epoch
_SESSION_ROWS, _EPOCH_ROWS = 1_400_000, 28_000

_INSERTS = tuple(_statements("inserts.sql", ";\n"))
_CHANGES = tuple(_statements("changes.sql", "\n\n"))


@dataclass
class _Session:
    """One connection. Its rows have ids from ``low``; those from ``free`` on are not used yet."""

    number: int
    connection: Connection
    low: int
    free: int
    open: bool = False
    large: bool = False
    left: int = 0
    savepoints: list[str] = field(default_factory=list)


@dataclass
class Workload:
    """``prepared``: gids of transactions that wait; what ``run`` did is in ``done``, by kind, for tests of coverage."""

    name: str
    rng: random.Random
    sessions: list[_Session]
    prepared: list[str] = field(default_factory=list)
    gids: int = 0
    done: dict[str, int] = field(default_factory=dict)

    def run(self, turns: int) -> None:
        """So many turns; then every open transaction is committed, and one more is left prepared."""
        for _ in range(turns):
            self._turn(self.rng.choice(self.sessions))
        for session in self.sessions:
            if session.open:
                self._end(session, "COMMIT")
        last = self.sessions[1]
        self._begin(last)
        self._insert(last)
        self._prepare(last)

    def _turn(self, session: _Session) -> None:
        if session.open and session.left:
            session.left -= 1
            self._weighted(
                (5, lambda: self._insert(session)),
                (8, lambda: self._change(session)),
                (6, lambda: self._savepoint(session)),
                (1, lambda: self._message(session)),
                (2, lambda: self._truncate(session)),
            )
        elif session.open:
            ends = [(8, lambda: self._end(session, "COMMIT")), (2, lambda: self._end(session, "ROLLBACK"))]
            if session.number not in (_ORIGIN_SESSION, _TRUNCATING_SESSION):
                ends.append((5, lambda: self._prepare(session)))
            self._weighted(*ends)
        elif self.prepared and self.rng.random() < 0.5:
            self._resolve(session)
        else:
            self._begin(session)

    def _weighted(self, *choices: tuple[int, Callable[[], None]]) -> None:
        [(_, act)] = self.rng.choices(choices, [weight for weight, _ in choices])
        act()

    def _begin(self, session: _Session) -> None:
        if session.number == _ORIGIN_SESSION and self.rng.random() < 0.5:
            self._run(session, "origin", "SELECT pg_replication_origin_session_setup({origin})")
            self._run(session, "begin", "BEGIN; SELECT pg_replication_origin_xact_setup('0/ABC', clock_timestamp())")
        else:
            self._run(session, "begin", "BEGIN")
        session.open, session.large = True, self.rng.random() < 0.4
        session.left = self.rng.randrange(2, 9)

    def _end(self, session: _Session, word: str) -> None:
        self._run(session, word.lower(), word)
        session.open, session.savepoints = False, []
        if session.number == _ORIGIN_SESSION:
            self._run(
                session,
                "reset",
                "SELECT pg_replication_origin_session_reset() WHERE pg_replication_origin_session_is_setup()",
            )

    def _prepare(self, session: _Session) -> None:
        gid = f"{self.name} it's {self.gids}"
        self.gids += 1
        self._run(session, "prepare", "PREPARE TRANSACTION {gid}", gid=gid)
        self.prepared.append(gid)
        session.open, session.savepoints = False, []
        # its rows are locked from now on, so the session takes others
        session.low = session.free = session.low + _EPOCH_ROWS

    def _resolve(self, session: _Session) -> None:
        gid = self.prepared.pop(self.rng.randrange(len(self.prepared)))
        word = self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        self._run(session, f"{word.lower()} prepared", f"{word} PREPARED {{gid}}", gid=gid)

    def _insert(self, session: _Session) -> None:
        rows = self.rng.randrange(60, 200) if session.large else self.rng.randrange(1, 20)
        lo = session.free
        session.free += rows
        for statement in self.rng.sample(_INSERTS, 4 if session.large else 2):
            self._run(session, "insert", statement, lo=lo, hi=session.free - 1)

    def _change(self, session: _Session) -> None:
        hi = session.free - 1
        lo = max(session.low, hi - (600 if session.large else 60))
        lo -= lo % 14
        if hi >= lo:
            statement = self.rng.choice(_CHANGES)
            self._run(session, "change", statement, lo=lo, hi=hi, pick=self.rng.randrange(3))

    def _savepoint(self, session: _Session) -> None:
        """One more, or an end for one of those there are, which takes those inside it along."""
        if not session.savepoints or self.rng.random() < 0.4:
            session.savepoints.append(f"s{len(session.savepoints)}")
            self._run(session, "savepoint", f"SAVEPOINT {session.savepoints[-1]}")
            self._insert(session)
            return
        at = self.rng.randrange(len(session.savepoints))
        name = session.savepoints[at]
        if self.rng.random() < 0.6:
            self._run(session, "rollback to", f"ROLLBACK TO {name}")
            del session.savepoints[at + 1 :]
        else:
            self._run(session, "release", f"RELEASE {name}")
            del session.savepoints[at:]

    def _message(self, session: _Session) -> None:
        transactional = self.rng.random() < 0.5
        kind = "message" if transactional else "loose message"
        statement = f"SELECT pg_logical_emit_message({transactional}, 'outbox', {{lo}}::text)"
        self._run(session, kind, statement, lo=session.free)

    def _truncate(self, session: _Session) -> None:
        if session.number != _TRUNCATING_SESSION:
            return
        lo = session.free
        session.free += 10
        statement = self.rng.choice(
            ["TRUNCATE scrap CASCADE", "TRUNCATE scrap_line", "TRUNCATE scrap, scrap_line RESTART IDENTITY"]
        )
        self._run(session, "truncate", statement)
        self._run(
            session, "refill", "INSERT INTO scrap SELECT g, 's' FROM generate_series({lo}, {hi}) g", lo=lo, hi=lo + 9
        )
        self._run(
            session,
            "refill",
            "INSERT INTO scrap_line SELECT id, id FROM scrap WHERE id BETWEEN {lo} AND {hi}",
            lo=lo,
            hi=lo + 4,
        )

    def _run(self, session: _Session, kind: str, statement: str, **values: object) -> None:
        literals = {name: sql.Literal(value) for name, value in {"origin": self.name, **values}.items()}
        session.connection.execute(sql.SQL(statement).format(**literals))
        self.done[kind] = self.done.get(kind, 0) + 1


@contextmanager
def workload(database: Database, seed: int = 1) -> Iterator[Workload]:
    """The tables must be there (``SCHEMA``). At the end prepared transactions that are left are rolled back."""
    with ExitStack() as stack:
        connections = [stack.enter_context(database.connect()) for _ in range(_SESSIONS)]
        for connection in connections:
            connection.execute("SET lock_timeout = '10s'")
        first = connections[0]
        first.execute("SELECT pg_replication_origin_create(%s)", [database.name])
        try:
            sessions = [
                _Session(number, connection, 14 + number * _SESSION_ROWS, 14 + number * _SESSION_ROWS)
                for number, connection in enumerate(connections)
            ]
            yield Workload(database.name, random.Random(seed), sessions)  # noqa: S311
        finally:
            for connection in connections:
                connection.execute("ROLLBACK")
            sessions[_ORIGIN_SESSION].connection.close()
            gids = first.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall()
            for (gid,) in gids:
                first.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
            first.execute("SELECT pg_replication_origin_drop(%s)", [database.name])
