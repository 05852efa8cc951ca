"""``status`` for eyes and for Prometheus: what is known is a number, what is worth a word a line, and nothing fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.cli.command import DSN_VARIABLE, Answer, configured
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring.md"
NAME = 'a"\\\nb\x1b[31m'


def samples(answer: Answer) -> dict[tuple[str, str], float]:
    """By name, and the label beside the pipeline's."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(answer.stdout):
        for sample in family.samples:
            assert sample.labels.pop("pipeline")
            found[sample.name.removeprefix("postgres_cdc_"), "".join(sample.labels.values())] = sample.value
    return found


def test_metrics_and_findings(database: Database, tmp_path: Path) -> None:
    with database.connect() as connection:
        connection.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY)").format(sql.Identifier(NAME)))
    table = 'public.U&"a""\\\\\\000Ab\\001B[31m"'
    health = {"lag_bytes": {"error": "1KiB"}, "oldest_transaction": {"warn": "0s"}}
    command = configured(tmp_path, database.dsn, database.name, [table], health=health)
    before = samples(command("status", "--output", "prometheus"))
    assert before["up", ""] == 1
    assert ("lag_bytes", "") not in before, "what is not known is absent"

    assert command("capture").exit_code == 0
    with database.connect() as held:
        pid = held.info.backend_pid
        held.execute("BEGIN")
        held.execute(sql.SQL("INSERT INTO {} SELECT generate_series(1, 1000)").format(sql.Identifier(NAME)))
        database.execute("CREATE TABLE other AS SELECT generate_series(1, 1000)")
        now = command("status", "--output", "prometheus")
        shown = command("status")
    found = samples(now)
    assert (now.exit_code, now.stderr) == (0, "")
    assert found["lag_bytes", ""] > 1024
    assert found["lag_seconds", ""] > 0
    assert found["restart_bytes", ""] >= found["lag_bytes", ""]
    assert found["restart_distance_bytes", ""] == found["restart_bytes", ""], "the former name"
    assert "# HELP postgres_cdc_restart_distance_bytes renamed to postgres_cdc_restart_bytes\n" in now.stdout
    assert found["oldest_transaction_seconds", ""] > 0
    assert found["free_replication_slots", ""] > 0
    assert found["slot_active", ""] == 0
    assert ("landed_windows", "") in found
    assert (found["findings", "error"], found["findings", "warn"]) == (1, 1)
    assert found["table_stopped", table] == 0
    assert shown.exit_code == 0
    assert "error: " in shown.stdout
    assert "iB of WAL are not landed: run sync" in shown.stdout
    assert f"warn: a transaction holds the slot back (of server process {pid}" in shown.stdout


def test_a_source_that_is_away_is_a_metric_too(database: Database, tmp_path: Path) -> None:
    command = configured(tmp_path, f"{database.dsn} port=1", database.name, ["public.t"])
    answer = command("status", "--output", "prometheus")
    assert samples(answer)["up", ""] == 0
    assert answer.exit_code == 1
    assert "cannot connect to PostgreSQL" in answer.problem


def test_the_documented_cron_line_never_empties_the_file(database: Database, tmp_path: Path) -> None:
    (line,) = re.findall(r"^\* \* \* \* \* (.*--output prometheus.*)$", MONITORING.read_text(), re.MULTILINE)
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
    folder = tmp_path / "node_exporter"
    folder.mkdir()
    line = line.replace("/var/lib/node_exporter", str(folder)).replace("/etc/shop.yaml", str(command.configuration))
    programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(**changes: str) -> str:
        subprocess.run(
            ["sh", "-c", line], env={**os.environ, **command.environment, **programs, **changes}, check=False
        )
        return (folder / "shop.prom").read_text()

    well = run()
    assert f'postgres_cdc_up{{pipeline="{database.name}"}} 1.0' in well
    nobody = make_conninfo(database.dsn, port=1)
    down = run(**{DSN_VARIABLE: nobody})
    assert f'postgres_cdc_up{{pipeline="{database.name}"}} 0.0' in down
    command.configuration.write_text("type: nothing")
    assert run() == down


def test_a_table_is_late_by_what_it_does_not_show(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    command = configured(tmp_path, database.dsn, database.name, ["public.t", "public.u"])
    assert command("sync").exit_code == 0
    database.execute("INSERT INTO t VALUES (1)")
    assert command("capture").exit_code == 0

    def told() -> tuple[float, float, float]:
        status = command("status", "--json").document
        t, u = status["tables"]
        return t["lag_seconds"], u["lag_seconds"], status["log"]["lag_seconds"]

    t, u, log = told()
    assert t > log, "since the commit, which was before the landing"
    assert u == log, "it has no change to apply"
    assert command("apply").exit_code == 0
    t, u, log = told()
    assert t == u == log
