"""Reads the state of the slot and its server.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.open_transactions import OLDEST_TRANSACTION, OpenTransaction
from spark_jobs.postgres.provider import SELF_MANAGED, Provider, provider_of
from spark_jobs.postgres.slot import SPARE_SLOTS, Slot, find_slot, missing_slot, require_logical


@dataclass(frozen=True)
class ServerIdentity:
    """Identifies the WAL: another system identifier means another cluster, another timeline a promotion or restore."""

    system_identifier: int
    timeline: int
    server_version: int
    database: str


@dataclass(frozen=True, kw_only=True)
class SlotHealth(Slot):
    """The present state of one logical slot and its server.

    ``confirmed_flush_bytes`` and ``restart_bytes`` of WAL lie between the LSNs of these names and ``flushed_lsn``: the
    former are not captured yet; the latter must be kept by the server, which decodes them again with each read.
    ``free_replication_slots``: of the whole server.
    """

    plugin: str
    flushed_lsn: Lsn
    oldest_transaction: OpenTransaction | None
    free_replication_slots: int = field(metadata={"formerly": "free_slots"})
    server: ServerIdentity
    provider: Provider = SELF_MANAGED
    confirmed_flush_bytes: int | None = field(init=False)
    restart_bytes: int | None = field(init=False)

    def __post_init__(self) -> None:  # fields, so that they are in the JSON document
        object.__setattr__(self, "confirmed_flush_bytes", _distance(self.confirmed_flush_lsn, self.flushed_lsn))
        object.__setattr__(self, "restart_bytes", _distance(self.restart_lsn, self.flushed_lsn))

    @property
    def active(self) -> bool:
        return self.active_pid is not None


# after a promotion the control file has the old timeline until the next checkpoint; the name of the current WAL file
# has the new one
_SERVER = """
SELECT c.system_identifier,
       CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END,
       current_setting('server_version_num')::int,
       current_database()::text,
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text
FROM pg_catalog.pg_control_system() c
"""
_HEALTH = f"""
WITH server(system_identifier, timeline, server_version, database, flushed) AS ({_SERVER}),
     oldest AS ({OLDEST_TRANSACTION})
SELECT server.*, {SPARE_SLOTS}, oldest.* FROM server LEFT JOIN oldest ON true
"""  # noqa: S608  # constants


def server_identity(connection: Connection) -> ServerIdentity:
    """The cluster, timeline, version and database of the connection. Raises SourceError."""
    with source_errors("the server's identity could not be read"):
        row = connection.execute(_SERVER).fetchall()[0]
    return ServerIdentity(*row[:4])


def slot_health(connection: Connection, slot: str) -> SlotHealth:
    """The slot's state. Raises SlotError when there is no slot of that name."""
    health = find_slot_health(connection, slot)
    if isinstance(health, ServerIdentity):
        raise missing_slot(slot)
    return health


def find_slot_health(connection: Connection, slot: str) -> SlotHealth | ServerIdentity:
    """The slot's state, or the server's identity when there is no slot of that name.

    Its statements wait for no lock. Without ``pg_read_all_stats`` the age of other roles' transactions is hidden.
    Raises SlotError when the slot is physical or belongs to another database.
    """
    with source_errors(f"slot {slot} could not be looked up"):
        row = connection.execute(_HEALTH).fetchall()[0]
    *server, flushed, free = row[:-6]
    identity, oldest = ServerIdentity(*server), OpenTransaction(*row[-6:])
    found = find_slot(connection, slot)
    if found is None:
        return identity
    require_logical(found, identity.database)
    return SlotHealth(
        **vars(found),
        flushed_lsn=Lsn.parse(flushed),
        oldest_transaction=None if oldest.pid is None and oldest.gid is None else oldest,
        free_replication_slots=free,
        server=identity,
        provider=provider_of(connection),
    )


def _distance(lsn: Lsn | None, flushed: Lsn) -> int | None:
    return None if lsn is None else max(0, flushed - lsn)
