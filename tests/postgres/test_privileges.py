"""Whether a server lets us decode: its own setting, since PostgreSQL 19 its slots, on a standby the primary's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import SecretStr

from spark_jobs.capture.plugins import NEWEST_SERVER
from spark_jobs.doctor.checks import Verdict
from spark_jobs.doctor.source_checks import server_checks
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.privileges import ServerSettings, server_settings
from spark_jobs.postgres.slot import spare_slots
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database, started
from tests.fixtures.standbys import base_backup, copy_started, wait_for_replay


def settings(wal_level: str, effective: str | None, *, version: int = 19, in_recovery: bool = False) -> ServerSettings:
    return ServerSettings(f"{version}.1", version * 10_000, in_recovery, wal_level, effective, 10, 9, 10, 9, "UTF8")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (settings("logical", None, version=18), None),
        (settings("replica", None, version=18), "wal_level is replica: ALTER SYSTEM SET wal_level = 'logical', then"),
        (settings("minimal", None, version=18), "wal_level is minimal: ALTER SYSTEM SET wal_level = 'logical', then"),
        (settings("replica", None, version=18, in_recovery=True), "wal_level is replica: ALTER SYSTEM"),
        (settings("logical", "logical"), None),
        (settings("replica", "replica"), None),
        (settings("replica", "logical"), None),
        (settings("minimal", "minimal"), "wal_level is minimal: ALTER SYSTEM SET wal_level = 'replica', then restart"),
        (settings("replica", "logical", in_recovery=True), None),
        (
            settings("logical", "replica", in_recovery=True),
            "the primary's effective_wal_level is replica: on the primary",
        ),
    ],
)
def test_what_decoding_needs(found: ServerSettings, why: str | None) -> None:
    error = found.why_no_decoding
    assert (error is None) == (why is None)
    assert why is None or str(error).startswith(why)
    [check] = [check for check in server_checks(found) if check.what == "wal_level"]
    assert check.verdict is (Verdict.OK if why is None else Verdict.FAIL)


def test_a_server_newer_than_any_tested_one_is_a_warning() -> None:
    assert max(VERSIONS) == NEWEST_SERVER
    tested, newer = (
        next(iter(server_checks(settings("logical", "logical", version=version))))
        for version in (NEWEST_SERVER, NEWEST_SERVER + 1)
    )
    assert (tested.what, tested.verdict) == ("server version", Verdict.OK)
    assert (newer.what, newer.verdict, newer.found) == ("server version", Verdict.WARN, f"{NEWEST_SERVER + 1}.1")
    assert f"tested up to PostgreSQL {NEWEST_SERVER}" in newer.remedy


@pytest.mark.postgres
def test_the_slot_of_a_repack_takes_none_of_ours(database_19: Database) -> None:
    database = database_19
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with connected(SecretStr(database.dsn)) as connection, database.connect() as reader, ThreadPoolExecutor(1) as other:
        before = spare_slots(connection)
        assert server_settings(connection).free_slots == before
        with reader.transaction():
            reader.execute("SELECT FROM t")
            repack = other.submit(database.execute, "REPACK (CONCURRENTLY) t")
            while not database.execute("SELECT 1 FROM pg_replication_slots WHERE plugin = 'pgrepack'"):
                assert not repack.done()
            assert (spare_slots(connection), server_settings(connection).free_slots) == (before, before)
        repack.result()


@pytest.mark.postgres
def test_a_standby_decodes_while_its_primary_has_a_logical_slot() -> None:
    with (
        started(19, {"wal_level": "replica"}) as primary,
        base_backup(primary, standby=True) as copy,
        copy_started(primary, copy, {"wal_level": "replica"}) as standby,
    ):

        def of_standby() -> ServerSettings:
            wait_for_replay(primary, standby)
            with connected(SecretStr(standby.dsn())) as connection:
                return server_settings(connection)

        error = of_standby().why_no_decoding
        assert error is not None
        assert "create a logical slot" in error.hint
        Database(primary, "postgres").execute("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
        found = of_standby()
        assert (found.wal_level, found.effective_wal_level, found.why_no_decoding) == ("replica", "logical", None)
        [warning] = [check for check in server_checks(found) if check.what == "role of the server"]
        assert "must keep a logical slot" in warning.remedy
