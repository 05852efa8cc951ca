"""Managed PostgreSQL: which service runs the server, and what its administrator does where PostgreSQL's own statements
are refused.

``docs/managed-postgresql.md`` names each service's own page.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import quoted_identifier

# all other settings that a remedy names are reloaded
_NEED_RESTART = ("max_replication_slots", "max_wal_senders")


@dataclass(frozen=True)
class Provider:
    """Who runs the server. The defaults are the remedies for a server that its users run themselves, and for each
    service whose documentation names no others.

    ``role``, ``setting``, ``function``: only this service's servers have them. ``logical`` turns on logical decoding;
    ``replication`` lets ``{role}`` create and read slots; ``place`` is where settings are changed, ``restart`` what
    makes the server read them; ``fixed`` are settings that cannot be changed.
    """

    name: str = ""
    role: str = ""
    setting: str = ""
    function: str | None = None
    logical: str = "ALTER SYSTEM SET wal_level = '{level}', then restart the server"
    replication: str = "ALTER ROLE {role} REPLICATION"
    place: str = ""
    restart: str = "restart the server"
    fixed: tuple[str, ...] = ()

    def turn_on_decoding(self, level: str = "logical") -> str:
        """``level``: the wal_level that is needed."""
        return self.logical.format(level=level)

    def let_replicate(self, role: str) -> str:
        return self.replication.format(role=quoted_identifier(role))

    def or_raise(self, otherwise: str, setting: str, above: int | None = None) -> str:
        """``otherwise``, or to raise ``setting``, where it can be raised. No colon is added: readers of findings split
        at the last one."""
        if setting in self.fixed:
            return otherwise
        limit = "" if above is None else f" above {above}"
        restart = f", then {self.restart}" if self.restart and setting in _NEED_RESTART else ""
        return f"{otherwise}, or raise {setting}{limit}{self.place}{restart}"


SELF_MANAGED = Provider()
# the first that fits: Aurora has all that RDS has
PROVIDERS = (
    Provider(
        "Amazon Aurora",
        role="rds_superuser",
        setting="rds.logical_replication",
        function="pg_catalog.aurora_version",
        logical="set rds.logical_replication = 1 in the DB cluster parameter group, then reboot the writer instance",
        replication="GRANT rds_replication TO {role}",
        place=" in the DB cluster parameter group",
        restart="reboot the writer instance",
    ),
    Provider(
        "Amazon RDS",
        role="rds_superuser",
        setting="rds.logical_replication",
        logical="set rds.logical_replication = 1 in the DB parameter group, then reboot the instance",
        replication="GRANT rds_replication TO {role}",
        place=" in the DB parameter group",
        restart="reboot the instance",
    ),
    Provider(
        "Cloud SQL",
        role="cloudsqlsuperuser",
        setting="cloudsql.logical_decoding",
        logical="set the instance's flag cloudsql.logical_decoding = on, which restarts it",
        place=" in the instance's flags",
        restart="",  # changing them does
    ),
    Provider(
        "AlloyDB",
        role="alloydbsuperuser",
        setting="alloydb.logical_decoding",
        logical="set the instance's flag alloydb.logical_decoding = on, which restarts it",
    ),
    Provider(
        "Azure Database for PostgreSQL",
        role="azure_pg_admin",
        setting="azure.extensions",
        logical="set the server parameter wal_level = logical, then restart the server",
        place=" in the server parameters",
        fixed=("max_slot_wal_keep_size",),
    ),
    Provider(
        "Supabase",
        role="supabase_admin",
        setting="supautils.privileged_role",
        replication="ALTER ROLE {role} REPLICATION, as postgres; before PostgreSQL 17 only postgres can replicate",
        place=" by `supabase postgres-config update`",
        restart="",  # the command restarts the server itself
    ),
    Provider(
        "Neon",
        role="neon_superuser",
        setting="neon.timeline_id",
        logical="enable Logical Replication in the project's settings, which restarts its computes",
        replication="connect with a role that was made in the Neon console, by its CLI or API: those can replicate",
        fixed=("max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size"),
    ),
)
# both are needed: roles come along when a dump of a service's roles is restored elsewhere
_FIND = """
SELECT p.place FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS p(rolname, setting, function, place)
JOIN pg_catalog.pg_roles r ON r.rolname = p.rolname
WHERE current_setting(p.setting, true) IS NOT NULL AND (p.function IS NULL OR to_regproc(p.function) IS NOT NULL)
ORDER BY p.place LIMIT 1
"""


def provider_of(connection: Connection) -> Provider:
    """Who runs the server; ``SELF_MANAGED`` if it is no service that we know. Raises SourceError."""
    signs = [[p.role for p in PROVIDERS], [p.setting for p in PROVIDERS], [p.function for p in PROVIDERS]]
    with source_errors("the server's settings could not be read"):
        try:
            row = connection.execute(_FIND, signs).fetchone()
        except psycopg.errors.InsufficientPrivilege:  # a service may hide a setting; then the general remedies do
            return SELF_MANAGED
    return SELF_MANAGED if row is None else PROVIDERS[row[0] - 1]
