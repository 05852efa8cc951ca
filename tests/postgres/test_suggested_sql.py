"""The SQL in errors, hints and the documentation is executed as a user would paste it, and does what is said of it.

What the doctor suggests for role, publication and tables is in ``test_hints_of_the_doctor``; what is for Spark, in
``tests/spark/test_altered_delta_tables.py`` and ``tests/spark/test_cuts_under_load.py``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql
from pydantic import SecretStr

from cdc_assets.demo import embedded_postgres
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres
from cdc_assets.discovered_tables import discover_tables
from spark_jobs.capture.slot_findings import slot_findings
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.checks import Verdict
from spark_jobs.doctor.source_checks import server_checks
from spark_jobs.doctor.table_checks import publication_and_table_checks
from spark_jobs.errors import CdcError, PreconditionError, SlotError, SnapshotWaitsError
from spark_jobs.options.health_limits import HealthLimits, Threshold
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.health import slot_health
from spark_jobs.postgres.privileges import role_privileges, server_settings
from spark_jobs.postgres.slot import create_slot
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import RESERVED_WORDS, QualifiedName, quoted_identifier
from spark_jobs.snapshot.exporter import Patience, exported_snapshot
from spark_jobs.sync import sync
from tests.documented_grants import documented_role
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.server_folders import server_folder
from tests.fixtures.servers import Database, binaries_of, fresh_database, started

pytestmark = [pytest.mark.postgres]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
ODD = 'Odd "Name" of'


@pytest.fixture
def odd_database(server: PostgresServer) -> Iterator[Database]:
    with fresh_database(server, f"{ODD} {uuid.uuid4().hex[:8]}") as database:
        yield database


def test_every_reserved_word_is_quoted(every_database: Database) -> None:
    rows = every_database.execute("SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')")
    reserved = {str(word) for (word,) in rows}
    assert reserved <= RESERVED_WORDS
    assert RESERVED_WORDS - reserved <= {"system_user"}  # since PostgreSQL 16
    words = [str(word) for (word,) in every_database.execute("SELECT word FROM pg_get_keywords()")]
    every_database.execute(f"CREATE TABLE t ({', '.join(f'{quoted_identifier(word)} int' for word in words)})")
    every_database.execute(*(f"CREATE SCHEMA {quoted_identifier(word)}" for word in words))
    every_database.execute(*(f"CREATE TABLE {QualifiedName(word, word)} ()" for word in words))


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_prepared_transaction_is_ended_in_its_database(
    database: Database, odd_database: Database, ending: str
) -> None:
    """Also one of another database, which can be ended only there."""
    gid = rf"it's \ {odd_database.name}"
    with connected(SecretStr(database.dsn)) as connection:
        create_slot(connection, database.name, plugin="pgoutput")
    with odd_database.connect() as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE made ()")
        session.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
    with pytest.raises(SnapshotWaitsError) as waits, exported_snapshot(SecretStr(database.dsn), Patience(0)):
        pass
    (found,) = _about_the_oldest(database)
    for text in (waits.value.hint, found):
        commit, roll_back, where = re.findall(r": (COMMIT .+) or (ROLLBACK .+), in database (.+)$", text)[0]
        assert where == sql.Identifier(odd_database.name).as_string()
    odd_database.execute(commit if ending == "COMMIT" else roll_back)
    assert odd_database.execute("SELECT to_regclass('made') IS NOT NULL") == [(ending == "COMMIT",)]
    assert _about_the_oldest(database) == []
    with exported_snapshot(SecretStr(database.dsn)) as (snapshot, _):
        assert snapshot.lsn > 0


def _about_the_oldest(database: Database) -> list[str]:
    limits = replace(HealthLimits(), oldest_transaction=Threshold(0))
    with connected(SecretStr(database.dsn)) as connection:
        findings = slot_findings(slot_health(connection, database.name), None, limits)
    return [finding.text for finding in findings if "a transaction holds the slot back" in finding.text]


def _create(database: Database) -> None:
    with connected(SecretStr(database.dsn), statement_timeout="1s") as control:
        create_slot(control, database.name, plugin="pgoutput")


def _export(database: Database) -> None:
    with exported_snapshot(SecretStr(database.dsn), Patience(1)):
        pass


@pytest.mark.parametrize("step", [_create, _export])
def test_a_forgotten_session_is_ended(database: Database, step: Callable[[Database], None]) -> None:
    with closing(database.connect()) as forgotten:
        forgotten.execute("BEGIN")
        forgotten.execute("SELECT pg_current_xact_id()")
        with pytest.raises((SlotError, SnapshotWaitsError)) as waits:
            step(database)
        database.execute(re.findall(r"SELECT pg_terminate_backend\(\d+\)$", waits.value.hint)[0])
    step(database)


def test_a_lost_slot_that_nobody_has_read_is_dropped(tmp_path: Path) -> None:
    """On a server of its own: the setting holds for all slots."""
    with started(18, {"max_slot_wal_keep_size": "1MB"}) as server, fresh_database(server) as database:
        pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
        database.execute(
            "CREATE TABLE item (id int PRIMARY KEY)",
            f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
            *("CREATE TABLE filled AS SELECT 1", "DROP TABLE filled", "SELECT pg_switch_wal()") * 3,
            "CHECKPOINT",
        )
        with pytest.raises(SlotError, match="the server has invalidated it") as refused:
            prepare_slot(pipeline)
        database.execute(re.findall(r"SELECT pg_drop_replication_slot\('.+?'\)", refused.value.hint)[0])
        assert prepare_slot(pipeline).ordinal == 0


def test_wal_level_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line says goes before what ALTER SYSTEM says, so it says nothing of it here."""
    ours = {name: value for name, value in embedded_postgres.LOGICAL_SETTINGS.items() if name != "wal_level"}
    monkeypatch.setattr(embedded_postgres, "LOGICAL_SETTINGS", ours)
    with server_folder("18") as folder:
        for expected in (Verdict.FAIL, Verdict.OK):
            with running_postgres(folder, binaries=binaries_of(18)) as server:
                with connected(SecretStr(server.dsn())) as connection:
                    settings = server_settings(connection)
                (check,) = [check for check in server_checks(settings) if check.what == "wal_level"]
                assert check.verdict is expected
                if check.remedy:
                    statement, then = check.remedy.split(", then ")
                    assert then == "restart the server"
                    Database(server, "postgres").execute(statement)


def _discover(pipeline: Pipeline) -> None:
    discover_tables(pipeline, Path("tables.json"))


def _diagnose(pipeline: Pipeline) -> None:
    """What the doctor finds, as an error."""
    with connected(pipeline.source.dsn) as connection:
        for check in publication_and_table_checks(connection, pipeline, role_privileges(connection)):
            if check.verdict is not Verdict.OK:
                raise PreconditionError(check.found, hint=check.remedy)


@pytest.mark.parametrize("step", [prepare, _discover, _diagnose])
def test_an_empty_publication_gets_a_table(
    odd_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[Pipeline], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    slot = f"slot_{uuid.uuid4().hex[:8]}"
    pipeline = pipeline_of(odd_database, tmp_path / "lake", slot=slot)
    odd_database.execute("CREATE TABLE item (id int PRIMARY KEY)", f"CREATE PUBLICATION {_quoted(odd_database.name)}")
    with pytest.raises(PreconditionError, match="has no table") as refused:
        step(pipeline)
    statement = re.findall(r"ALTER PUBLICATION .+ \.\.\.", refused.value.hint)[0]
    odd_database.execute(statement.replace("...", "item"))
    step(pipeline)


def test_an_excluded_table_is_included(postgres_19: PostgresServer, tmp_path: Path) -> None:
    with fresh_database(postgres_19, f"{ODD} {uuid.uuid4().hex[:8]}") as database:
        name, odd = _quoted(database.name), QualifiedName("order", "It's")
        database.execute(
            'CREATE SCHEMA "order"',
            f"CREATE TABLE {odd} (id int PRIMARY KEY)",
            'CREATE TABLE "order"."The other" (id int PRIMARY KEY)',
            f'CREATE PUBLICATION {name} FOR ALL TABLES EXCEPT (TABLE {odd}, "order"."The other")',
        )
        pipeline = pipeline_of(database, tmp_path / "lake", str(odd), slot=f"slot_{uuid.uuid4().hex[:8]}")
        with pytest.raises(CdcError, match="does not publish") as refused:
            prepare(pipeline)
        database.execute(refused.value.hint)
        prepared = prepare(pipeline)
        assert (prepared.tables, prepared.stopped) == ((odd,), ())


def test_large_values_are_sent_after_the_statement(server: PostgresServer, tmp_path: Path) -> None:
    """Of rows that a filter lets in. Another lake shows it, as this one has to read the row of before anew."""
    moved = QualifiedName("order", "Moved")
    with fresh_database(server) as database:
        database.execute(
            'CREATE SCHEMA "order"',
            f"CREATE TABLE {moved} (id int PRIMARY KEY, doc text)",
            f"ALTER TABLE {moved} ALTER doc SET STORAGE EXTERNAL",
            f"INSERT INTO {moved} SELECT g, repeat('x', 9000) FROM generate_series(99, 102) g",
            f"CREATE PUBLICATION {database.name} FOR TABLE {moved} WHERE (id < 100)",
        )
        pipeline = replace(pipeline_of(database, tmp_path / "lake", str(moved)), on_rewrite="error")
        assert sync(pipeline, no_spark).errors == ()
        database.execute(f"UPDATE {moved} SET id = 1 WHERE id = 101")
        (error,) = sync(pipeline, no_spark).errors
        database.execute(re.findall(r": (ALTER TABLE .+)$", error.hint)[0])
        other = pipeline_of(
            database, tmp_path / "other", str(moved), slot=f"{database.name}_2", publication=(database.name,)
        )
        assert sync(other, no_spark).errors == ()
        database.execute(f"UPDATE {moved} SET id = 2 WHERE id = 102")
        report = sync(other, no_spark)
        assert (report.errors, report.snapshots) == ((), ())


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


# what begins like a statement; names only a kind of statement; has a place that the reader fills
_STATEMENT = re.compile(r"(?:ALTER|COMMENT|COMMIT|CREATE|DROP|GRANT|REVOKE|ROLLBACK|SELECT|SET|VACUUM)\b|pg_\w+\(.")
_KIND = re.compile(r"[A-Z ]+")
_PLACEHOLDER = re.compile(r"…|\.\.\.(?!')")
_OF_READERS = re.compile(r"\bdelta\.`|\bspark\.|USING DELTA|delta_scan")
_OF_A_SERVICE = re.compile(r"\brds_\w+")  # roles that only the service has
# what the pages take for granted
_TAKEN_FOR_GRANTED = (
    "CREATE TABLE orders (id int PRIMARY KEY)",
    "CREATE TABLE items (id int PRIMARY KEY)",
    "CREATE TABLE root (id int) PARTITION BY LIST (id)",
    "CREATE TABLE customers (email text)",
    "CREATE EXTENSION pgcrypto",
)


def _blocks() -> list[str]:
    """Of the documentation, for PostgreSQL and not for what reads the lake."""
    found = [block for page in PAGES for block in re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)]
    return [block for block in found if not _OF_READERS.search(block)]


def _spans() -> list[str]:
    """The whole statements in running text, and calls of functions of the server."""
    texts = (re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL) for page in PAGES)
    found = {span for text in texts for span in re.findall(r"`([^`\n]+)`", text) if _STATEMENT.match(span)}
    left_out = (_KIND.fullmatch, _PLACEHOLDER.search, _OF_A_SERVICE.search)
    return sorted(span for span in found if not any(matches(span) for matches in left_out))


def test_documented_statements_are_executed(database: Database) -> None:
    database.execute(*_TAKEN_FOR_GRANTED, "SELECT pg_create_logical_replication_slot('shop', 'pgoutput')")
    spans = _spans()
    assert "SELECT pg_drop_replication_slot('shop')" in spans
    # a slot is dropped before it is made anew
    for span in sorted(spans, key=lambda span: "pg_create" in span):
        database.execute(f"SELECT {span}" if span.startswith("pg_") else span)
    slots = "SELECT slot_name::text, failover FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(slots) == [("shop", True)]


def test_documented_blocks_are_executed(database: Database) -> None:
    database.execute(*_TAKEN_FOR_GRANTED, "INSERT INTO customers VALUES ('Ann@example.org')")
    # the quick start's, under names of this test
    with documented_role(database, "pw") as dsn, connected(SecretStr(dsn)) as connection:
        assert connection.execute("SELECT FROM public.orders, public.items").fetchall() == []
    hashed, of_another_tool = [block for block in _blocks() if "CREATE ROLE" not in block]
    masked = TableMask(("email",), b"the salt").hashed(b"Ann@example.org").decode()
    assert database.execute(hashed) == [(masked,)]
    database.execute(
        "CREATE PUBLICATION airbyte_publication",
        "SELECT pg_create_logical_replication_slot('airbyte_slot', 'pgoutput')",
        *filter(str.strip, re.sub(r"--.*", "", of_another_tool).split(";")),
    )
    left = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(left) == database.execute("SELECT FROM pg_publication") == []
