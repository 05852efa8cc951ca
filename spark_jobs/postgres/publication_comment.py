"""The comment of our publication: that we made it, and for each slot, which change log is read from it.

Nothing else at the source tells whether a slot is read for another lake: a slot has no comment, and what it was read
for is nowhere in ``pg_replication_slots``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import sql

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.own_ddl import own_ddl

_OURS = "made by postgres-cdc and kept in step with its configuration"
_READ_FOR = re.compile(r"; slot (?P<slot>[a-z0-9_]+) is read for change log (?P<log>[0-9a-f-]+)")


@dataclass(frozen=True)
class PublicationComment:
    """``logs``: slot, and the id of the change log's Delta table. Earlier releases did not write it."""

    logs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> PublicationComment | None:
        """None: the publication is the user's."""
        if text is None or not text.startswith(_OURS):
            return None
        return cls(tuple((match["slot"], match["log"]) for match in _READ_FOR.finditer(text)))

    def __str__(self) -> str:
        return _OURS + "".join(f"; slot {slot} is read for change log {log}" for slot, log in self.logs)

    def log_of(self, slot: str) -> str | None:
        return dict(self.logs).get(slot)

    def with_log(self, slot: str, log: str) -> PublicationComment:
        return PublicationComment(tuple({**dict(self.logs), slot: log}.items()))

    def without(self, slot: str) -> PublicationComment:
        return PublicationComment(tuple(pair for pair in self.logs if pair[0] != slot))


def may_write_comment(connection: Connection, publication: str) -> bool:
    """Whether the session may: it owns the publication, and the server is no standby."""
    query = """
        SELECT pg_has_role(pubowner, 'USAGE') AND current_setting('transaction_read_only') = 'off'
        FROM pg_catalog.pg_publication WHERE pubname = %s"""
    with source_errors(f"publication {publication} could not be read"):
        row = connection.execute(query, [publication]).fetchone()
    return row is not None and bool(row[0])


def write_comment(connection: Connection, publication: str, comment: PublicationComment) -> None:
    statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
    with own_ddl(connection, f"publication {publication} cannot be given its comment"):
        connection.execute(statement.format(sql.Identifier(publication), sql.Literal(str(comment))))
