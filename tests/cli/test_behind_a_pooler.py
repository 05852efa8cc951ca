"""A connection pooler between us and the server: doctor says beforehand what sync would stop at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from spark_jobs.postgres.pooler import pooler_of
from spark_jobs.postgres.refusals import connect_hint
from tests.cli.command import configured
from tests.fixtures.pooler import pooled
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

IGNORED = {"ignore_startup_parameters": "options,extra_float_digits"}


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        ({"pool_mode": "session", **IGNORED}, "replication connection"),
        ({"pool_mode": "transaction", **IGNORED}, "replication connection"),
        ({"pool_mode": "session"}, "connection"),
    ],
    ids=["session", "transaction", "options refused"],
)
def test_doctor_fails_where_sync_does(
    database: Database, tmp_path: Path, settings: Mapping[str, str], check: str
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    with pooled(database.dsn, settings) as dsn:
        command = configured(tmp_path, dsn, database.name, ["public.orders"])
        doctor, sync = command("doctor", "--json"), command("sync")
    failed = {each["what"]: each for each in doctor.document["checks"] if each["verdict"] == "fail"}
    assert check in failed, doctor.stdout
    assert "pooler" in failed[check]["remedy"]
    assert (doctor.exit_code, sync.exit_code) == (1, 1)
    assert "unsupported startup parameter" in sync.problem
    assert "pooler" in sync.hint


@pytest.mark.parametrize(
    ("host", "instead"),
    [
        ("ep-cool-darkness-123456-pooler.us-east-2.aws.neon.tech", "the same host without -pooler"),
        ("shop.proxy-demo.us-east-1.rds.amazonaws.com", "the endpoint of the instance"),
        ("aws-0-eu-central-1.pooler.supabase.com", "db.PROJECT.supabase.co"),
    ],
)
def test_poolers_of_services_are_told_by_their_host(
    database: Database, tmp_path: Path, host: str, instead: str
) -> None:
    """PgBouncer plays each of them: ``hostaddr`` leads to it whatever the host is called."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with pooled(database.dsn, {"pool_mode": "transaction", **IGNORED}) as dsn:
        named = make_conninfo(dsn, host=host, hostaddr="127.0.0.1")
        command = configured(tmp_path, named, database.name, ["public.orders"])
        doctor, sync = command("doctor", "--json"), command("sync")
    (check,) = [check for check in doctor.document["checks"] if check["what"] == "connection"]
    assert (check["verdict"], doctor.exit_code, sync.exit_code) == ("fail", 1, 1)
    assert instead in check["remedy"]
    assert sync.hint == check["remedy"]


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [
        ("db.abc.supabase.co", 6543, "Supabase's pooler"),
        ("db.abc.supabase.co", 5432, None),
        ("shop.postgres.database.azure.com", 6432, "Azure's PgBouncer"),
        ("shop.postgres.database.azure.com", 5432, None),
        ("ep-cool-darkness-123456.us-east-2.aws.neon.tech", 5432, None),
        ("shop.cluster-abc.eu-west-1.rds.amazonaws.com", 5432, None),
        ("db-pooler.example.com", 6543, None),
        ("one.example.com,ep-a-pooler.eu.aws.neon.tech", "5432,5433", "Neon's pooler"),
        ("/var/run/postgresql", 5432, None),
    ],
)
def test_addresses(host: str, port: str | int, name: str | None) -> None:
    found = pooler_of(make_conninfo(host=host, port=port))
    assert (found and found.name) == name


def test_what_rds_proxy_says_under_another_name() -> None:
    said = "FATAL:  Feature not supported: RDS Proxy currently doesn't support command-line options."
    assert "name the server itself" in connect_hint(said)
