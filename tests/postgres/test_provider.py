"""Which managed service runs a server, told by what only the service has, and the remedies that work there.

No service is here: its roles and settings are made on a server of our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.slot_findings import slot_findings
from spark_jobs.doctor.checks import Check
from spark_jobs.doctor.source_checks import role_check, server_checks, slots_free_check
from spark_jobs.errors import PreconditionError
from spark_jobs.options.health_limits import HealthLimits
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.health import slot_health
from spark_jobs.postgres.privileges import role_privileges, server_settings
from spark_jobs.postgres.provider import PROVIDERS, SELF_MANAGED, Provider, provider_of
from tests.cli.command import configured
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database, started
from tests.postgres.odd_role import odd_role

pytestmark = pytest.mark.postgres

BY_NAME = {provider.name: provider for provider in PROVIDERS}
each_provider = pytest.mark.parametrize("provider", [pytest.param(each, id=each.name) for each in PROVIDERS])


@pytest.fixture(scope="module")
def modest() -> Iterator[PostgresServer]:
    """A server without logical decoding. Roles are the server's, so no other test is to see them."""
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with started(18, settings) as server:
        yield server


@pytest.fixture
def database(modest: PostgresServer) -> Iterator[Database]:
    with fresh_database(modest) as database:
        yield database


@contextmanager
def with_role(database: Database, provider: Provider) -> Iterator[None]:
    database.execute(f"CREATE ROLE {provider.role}")
    try:
        yield
    finally:
        database.execute(f"DROP ROLE {provider.role}")


def _set(database: Database, provider: Provider) -> None:
    """A setting that no extension has defined is a text with a name: each role may look at it."""
    name = sql.Identifier(provider.setting).as_string()
    database.execute(f"ALTER DATABASE {database.name} SET {name} = 'off'")


@contextmanager
def as_if_on(database: Database, provider: Provider) -> Iterator[None]:
    """The signs of the service, for new sessions in this database."""
    _set(database, provider)
    if provider.function is not None:
        database.execute(f"CREATE FUNCTION {provider.function}() RETURNS text LANGUAGE sql AS 'SELECT ''16.4'''")
    with with_role(database, provider):
        yield


def login(database: Database, role: str) -> str:
    """The dsn of an ``odd_role``."""
    return database.server.dsn(database.name, user=role[1:-1].replace('""', '"'), password="pw")


def found(database: Database) -> Provider:
    with connected(SecretStr(database.dsn)) as connection:
        return provider_of(connection)


def of_server(database: Database) -> dict[str, Check]:
    with connected(SecretStr(database.dsn)) as connection:
        settings = server_settings(connection)
        return {check.what: check for check in (*server_checks(settings), slots_free_check(settings, False))}


@each_provider
def test_a_provider_is_known_by_two_signs(database: Database, provider: Provider) -> None:
    with as_if_on(database, provider):
        assert found(database) is provider
        assert of_server(database)["server version"].found.endswith(f" on {provider.name}")


@each_provider
def test_one_sign_is_not_enough(database: Database, provider: Provider) -> None:
    """A role of that name may come from a dump of the service's roles, and anyone may invent a setting."""
    with with_role(database, provider):
        assert found(database) is SELF_MANAGED
    _set(database, provider)
    assert found(database) is SELF_MANAGED
    assert " on " not in of_server(database)["server version"].found


def test_a_setting_that_the_role_may_not_see(database: Database) -> None:
    """PostgreSQL's own example of one, as no setting of a service is known to be hidden."""
    hidden = replace(BY_NAME["Neon"], setting="data_directory")
    with odd_role(database) as role, pytest.MonkeyPatch.context() as patch, with_role(database, hidden):
        patch.setattr("spark_jobs.postgres.provider.PROVIDERS", (hidden,))
        assert found(database) is hidden
        with connected(SecretStr(login(database, role))) as connection:
            assert provider_of(connection) is SELF_MANAGED


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("Amazon RDS", "wal_level", "set rds.logical_replication = 1 in the DB parameter group, then reboot"),
        ("Amazon Aurora", "wal_level", "set rds.logical_replication = 1 in the DB cluster parameter group"),
        ("Cloud SQL", "wal_level", "flag cloudsql.logical_decoding = on"),
        ("AlloyDB", "wal_level", "flag alloydb.logical_decoding = on"),
        ("Azure Database for PostgreSQL", "wal_level", "server parameter wal_level = logical"),
        ("Neon", "wal_level", "enable Logical Replication in the project's settings"),
        ("Amazon RDS", "replication slots", "max_replication_slots above 1 in the DB parameter group, then reboot"),
        ("Cloud SQL", "replication slots", "max_replication_slots above 1 in the instance's flags"),
        ("Supabase", "replication slots", "max_replication_slots above 1 by `supabase postgres-config update`"),
    ],
)
def test_remedies(database: Database, name: str, what: str, remedy: str) -> None:
    with as_if_on(database, BY_NAME[name]):
        check = of_server(database)[what]
        assert remedy in check.remedy
        assert "ALTER SYSTEM" not in check.remedy


def test_what_cannot_be_raised_is_not_suggested(database: Database) -> None:
    assert "raise max_replication_slots" in of_server(database)["replication slots"].remedy
    with as_if_on(database, BY_NAME["Neon"]):
        remedy = of_server(database)["replication slots"].remedy
    assert remedy == "the slot and a snapshot need two: drop a slot that nobody reads"


def test_findings_of_the_slot(postgres_16: PostgresServer) -> None:
    """Of every 30 seconds, and on a server with slots."""
    with fresh_database(postgres_16) as database:
        database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")

        def remedy() -> str:
            with connected(SecretStr(database.dsn)) as connection:
                health = replace(slot_health(connection, database.name), safe_wal_size=1)
            (finding,) = slot_findings(health, None, HealthLimits())
            return finding.text.rpartition(": ")[2]

        assert remedy() == "capture, or raise max_slot_wal_keep_size"
        with as_if_on(database, BY_NAME["Supabase"]):
            assert remedy() == "capture, or raise max_slot_wal_keep_size by `supabase postgres-config update`"
        with as_if_on(database, BY_NAME["Azure Database for PostgreSQL"]):
            assert remedy() == "capture"


@pytest.mark.parametrize("name", ["Amazon RDS", "Amazon Aurora"])
def test_the_role_of_rds_lets_replicate(database: Database, name: str) -> None:
    """What is suggested is executed as it stands, and corrects what was found."""
    with as_if_on(database, BY_NAME[name]), odd_role(database) as role:
        database.execute("CREATE ROLE rds_replication")
        try:
            with connected(SecretStr(login(database, role))) as connection:
                check = role_check(role_privileges(connection), server_settings(connection).provider)
                assert check.remedy == f"GRANT rds_replication TO {role}"
                database.execute(check.remedy)
                check = role_check(role_privileges(connection), server_settings(connection).provider)
                assert (check.verdict.value, check.remedy) == ("ok", "")
        finally:
            database.execute("DROP ROLE rds_replication")


def test_what_sync_says_is_what_doctor_says(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with as_if_on(database, BY_NAME["Amazon RDS"]):
        command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
        doctor, sync = command("doctor", "--json"), command("sync")
        checks = {check["what"]: check for check in doctor.document["checks"]}
        assert checks["server version"]["found"].endswith("on Amazon RDS")
        assert (checks["wal_level"]["verdict"], sync.exit_code) == ("fail", 1)
        assert sync.hint == checks["wal_level"]["remedy"] != ""


def test_what_sync_says_of_the_role(postgres_16: PostgresServer, tmp_path: Path) -> None:
    with (
        fresh_database(postgres_16) as database,
        as_if_on(database, BY_NAME["Amazon RDS"]),
        odd_role(database) as role,
    ):
        database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        pipeline = pipeline_of(database, tmp_path / "lake", "orders", dsn=login(database, role))
        with pytest.raises(PreconditionError, match="has no REPLICATION") as refused:
            prepare_slot(pipeline)
        assert refused.value.hint.startswith(f"GRANT rds_replication TO {role}; ")
