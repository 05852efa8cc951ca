"""``postgres-cdc init`` on real servers: what it writes is what the doctor accepts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from psycopg import sql

from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.doctor import Verdict, diagnose_source
from spark_jobs.doctor.table_checks import AREA
from tests.cli.command import Answer
from tests.documented_grants import documented_role
from tests.fixtures.forked_programs import run_program
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

VARIABLE = "SHOP_DSN"
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, state text)",
    'CREATE TABLE "Order Items" (id int, line int, PRIMARY KEY (id, line))',
    "CREATE TABLE codes (code text NOT NULL UNIQUE)",
    "ALTER TABLE codes REPLICA IDENTITY USING INDEX codes_code_key",
    "CREATE TABLE events (at timestamp)",
    "CREATE TABLE log (line text)",
    "ALTER TABLE log REPLICA IDENTITY FULL",
    "CREATE UNLOGGED TABLE cache (id int PRIMARY KEY)",
    "CREATE TABLE visits (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE visits_2026 PARTITION OF visits FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    "INSERT INTO visits SELECT n, '2026-01-01' FROM generate_series(1, 1000) n",
    'CREATE SCHEMA "select"; CREATE TABLE "select"."user" (id int PRIMARY KEY)',
    'CREATE TABLE "# {{ x }}: y" (id int PRIMARY KEY)',
    "CREATE EXTENSION postgres_fdw; CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw",
    "CREATE FOREIGN TABLE far (id int) SERVER elsewhere",
    "CREATE VIEW seen AS SELECT * FROM orders",
    "CREATE TEMPORARY TABLE mine (id int)",
)
WRITTEN = """\
  tables:
    - '{{ "public.\\"# {{ x }}: y\\"" }}'  # SIZE; key (id)
    - public."Order Items"  # SIZE; key (id, line)
    # - public.cache  # SIZE; is unlogged: its changes are not in the WAL: ALTER TABLE public.cache SET LOGGED; a new \
snapshot follows by itself
    - public.codes  # SIZE; key (code), the replica identity
    # - public.events  # SIZE; has no usable key (replica identity d): give it a primary key, or follow it by its \
whole rows: ALTER TABLE public.events REPLICA IDENTITY FULL
    # - public.far  # SIZE; is a foreign table: replicate it from the database that holds it
    - public.log  # SIZE; no key: rows are matched by all columns
    - public.orders  # SIZE; key (id)
    - public.visits  # 64.0 KiB; key (id, day)
    - '"select".user'  # SIZE; key (id)
"""


def init(folder: Path, dsn: str | None, *options: str) -> Answer:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {} if dsn is None else {VARIABLE: dsn}
    arguments = ("init", "--dsn-env", VARIABLE, *options)
    answer = run_program("cdc_assets.cli", *arguments, environment=environment, folder=folder, timeout=120)
    return Answer(answer.returncode, answer.stdout, answer.stderr, "init")


def test_every_table_is_listed_with_the_doctors_verdict(
    every_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_database.execute(*TABLES)
    answer = init(tmp_path, every_database.dsn)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == [
        f"postgres-cdc.yaml: pipeline {every_database.name} with 7 tables of database {every_database.name}",
        "3 tables commented out, each with what must be done to replicate it",
        "Edit it, then run:",
        "  postgres-cdc doctor --config postgres-cdc.yaml",
    ]
    text = (tmp_path / "postgres-cdc.yaml").read_text()
    assert re.sub(r"# (8\.0 KiB|16\.0 KiB|0 bytes);", "# SIZE;", text).endswith(WRITTEN)
    assert yaml.safe_load(text)["attributes"]["source"] == {"dsn": f"{{{{ env.{VARIABLE} }}}}"}
    assert every_database.server.password not in text
    monkeypatch.setenv(VARIABLE, every_database.dsn)
    pipeline = load_pipeline(tmp_path / "postgres-cdc.yaml")
    checks = [check for check in diagnose_source(pipeline).checks if check.area == AREA]
    assert len(checks) == 1 + 7  # with that of the publication
    assert {check.verdict for check in checks} == {Verdict.OK}


def test_with_the_least_privileges(database: Database, tmp_path: Path) -> None:
    """Tables that the role may not read are listed too, with what it lacks."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE SCHEMA hidden; CREATE TABLE hidden.secrets (id int PRIMARY KEY)",
    )  # fmt: skip
    with documented_role(database, "pw") as dsn:
        answer = init(tmp_path, dsn, "--json")
        assert answer.exit_code == 0, answer.stderr
        verdicts = {table["name"]: table["verdict"] for table in answer.document["found"]["tables"]}
        assert verdicts == {"hidden.secrets": "fail", "public.items": "ok", "public.orders": "ok"}
        assert answer.document["found"]["problems"] == []
        assert "GRANT USAGE ON SCHEMA hidden TO " in (tmp_path / "postgres-cdc.yaml").read_text()


def test_what_is_wrong_with_the_source_is_in_the_file(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    role = sql.Identifier(f"reader_{database.name}").as_string()
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
    try:
        answer = init(tmp_path, database.server.dsn(database.name, user=role.strip('"'), password="pw"))
        assert answer.exit_code == 0, answer.stderr
        text = (tmp_path / "postgres-cdc.yaml").read_text()
    finally:
        database.execute(f"DROP ROLE {role}")
    assert f"    # fail: role: reader_{database.name}: no REPLICATION: ALTER ROLE " in text
    assert "2 findings about the source, under source:" in answer.stdout


def test_only_the_tables_that_were_asked_for(database: Database, tmp_path: Path) -> None:
    database.execute(*TABLES)
    answer = init(
        tmp_path,
        None,
        "--dsn",
        database.dsn,
        "--table",
        "public.o*",
        "--table",
        '"select".*',
        "--output-file",
        "a.yaml",
    )
    assert answer.exit_code == 0, answer.stderr
    assert f"  export {VARIABLE}=...  # the connection string, which is not in the file" in answer.stdout
    assert re.findall(r"^    - (\S+)", (tmp_path / "a.yaml").read_text(), re.MULTILINE) == [
        "public.orders",
        "'\"select\".user'",
    ]
    none = init(tmp_path, database.dsn, "--table", "sales.orders", "--output-file", "b.yaml")
    assert none.exit_code == 2
    assert none.problem == f"database {database.name} has no table that matches sales.orders"
    assert none.hint == 'it has 10 tables, in "select", public'
    assert not (tmp_path / "b.yaml").exists()


def test_what_cannot_be_written_is_said_before_the_database_is_asked(tmp_path: Path) -> None:
    unreachable = "host=127.0.0.1 port=1 password=hunter2"
    (tmp_path / "postgres-cdc.yaml").write_text("mine")
    for dsn, options, problem in (
        (unreachable, (), "postgres-cdc.yaml: exists already"),
        (None, ("--output-file", "other.yaml"), f"environment variable {VARIABLE} is not set"),
        (None, ("--output-file", "other.yaml", "--dsn-env", "a b"), "not a name of an environment variable: a b"),
        (
            unreachable,
            ("--output-file", "none/other.yaml"),
            "none/other.yaml: cannot be written: there is no folder none",
        ),
    ):
        answer = init(tmp_path, dsn, *options)
        assert (answer.exit_code, answer.problem) == (2, problem)
    refused = init(tmp_path, unreachable, "--output-file", "other.yaml")
    assert refused.exit_code == 1
    assert "cannot connect" in refused.problem
    assert "hunter2" not in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["postgres-cdc.yaml"]
    assert (tmp_path / "postgres-cdc.yaml").read_text() == "mine"
