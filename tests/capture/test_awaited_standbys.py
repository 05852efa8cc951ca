"""A slot that sends nothing before a standby has it: while that standby is away, a read would wait for ever."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.doctor.log_check import change_log_check
from spark_jobs.errors import SlotError
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import fresh_database, started

pytestmark = pytest.mark.postgres


def configure(server: PostgresServer, names: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{names}'")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.timeout(120)
def test_a_standby_that_is_away_is_named(tmp_path: Path) -> None:
    with started(18) as server, fresh_database(server) as database:
        database.execute(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput', false, false, true)",
            "SELECT pg_create_physical_replication_slot('standby_1', true)",
        )
        pipeline = pipeline_of(database, tmp_path / "lake", "public.t")
        assert sync(pipeline, no_spark).errors == ()
        configure(server, "standby_1")
        database.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SlotError, match=r"the standby of slot standby_1 has received it, and .* is not connected"):
            sync(pipeline, no_spark)
        (finding,) = pipeline_status(pipeline).findings
        assert (finding.severity, "start the standby" in finding.text) == ("error", True)
        *_, check = change_log_check(pipeline)
        assert check.verdict.name == "FAIL"
        configure(server, "")
        report = sync(pipeline, no_spark)
        assert (report.errors, [table.changes.inserts for table in report.tables]) == ((), [1])
