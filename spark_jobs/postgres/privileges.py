"""The server settings and role privileges that logical decoding and snapshots depend on.

https://www.postgresql.org/docs/current/logical-replication-config.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.provider import SELF_MANAGED, Provider, provider_of
from spark_jobs.postgres.slot import SPARE_SLOTS


@dataclass(frozen=True)
class ServerSettings:
    """``free_slots`` and ``free_wal_senders``: what is not in use now.

    ``effective_wal_level`` (since PostgreSQL 19): ``logical`` while a primary with ``wal_level = replica`` has a
    logical slot; a standby has its primary's.
    """

    server_version: str
    server_version_num: int
    in_recovery: bool
    wal_level: str
    effective_wal_level: str | None
    max_replication_slots: int
    free_slots: int
    max_wal_senders: int
    free_wal_senders: int
    server_encoding: str
    provider: Provider = SELF_MANAGED

    @property
    def why_no_decoding(self) -> PreconditionError | None:
        """Why the server can have no logical slot, and what to do; None: it can."""
        level = self.effective_wal_level or self.wal_level
        if level == "logical" or (self.effective_wal_level == "replica" and not self.in_recovery):
            return None
        if self.effective_wal_level and self.in_recovery:
            return PreconditionError(
                f"the primary's effective_wal_level is {level}",
                hint=f"on the primary: {self.provider.turn_on_decoding()}, or create a logical slot and keep it",
            )
        needed = "replica" if self.effective_wal_level else "logical"
        return PreconditionError(f"wal_level is {level}", hint=self.provider.turn_on_decoding(needed))


@dataclass(frozen=True)
class RolePrivileges:
    """The role of the connection string. ``may_replicate``: superuser, REPLICATION, or a managed service's own role."""

    name: str
    superuser: bool
    may_replicate: bool
    may_create_in_database: bool


_SETTINGS = f"""
SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(),
       current_setting('wal_level'), current_setting('effective_wal_level', true),
       current_setting('max_replication_slots')::int,
       {SPARE_SLOTS},
       current_setting('max_wal_senders')::int,
       current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_catalog.pg_stat_replication)::int,
       current_setting('server_encoding')
"""  # noqa: S608  # constants
# Amazon RDS grants rds_replication instead of the REPLICATION attribute
_ROLE = """
SELECT rolname::text, rolsuper,
       rolsuper OR rolreplication OR EXISTS (
         SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(g.oid, 'MEMBER')),
       has_database_privilege(current_database(), 'CREATE')
FROM pg_catalog.pg_roles WHERE rolname = current_user
"""


def server_settings(connection: Connection) -> ServerSettings:
    with source_errors("the server's settings could not be read"):
        row = connection.execute(_SETTINGS).fetchall()[0]
    return replace(ServerSettings(*row), provider=provider_of(connection))


def require_slot_possible(connection: Connection, slot: str) -> None:
    """Raise PreconditionError when the server would refuse to create a slot of this name now."""
    settings, role = server_settings(connection), role_privileges(connection)
    what = f"slot {slot} cannot be created"
    if error := settings.why_no_decoding:
        raise error.within(what)
    if not role.may_replicate:
        raise PreconditionError(
            f"{what}: role {role.name} has no REPLICATION",
            hint=f"{settings.provider.let_replicate(role.name)}; `postgres-cdc doctor` lists what else the role needs",
        )
    if settings.free_slots < 1:
        raise PreconditionError(
            f"{what}: all {settings.max_replication_slots} replication slots are in use",
            hint=settings.provider.or_raise("drop a slot that nobody reads", "max_replication_slots"),
        )


def role_privileges(connection: Connection) -> RolePrivileges:
    with source_errors("the role's privileges could not be read"):
        return RolePrivileges(*connection.execute(_ROLE).fetchall()[0])
