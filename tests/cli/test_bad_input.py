"""Bad input on a live server: one clear line, exit code 1, and nothing changed on either side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from tests.cli.command import Command, configured
from tests.fixtures.servers import Database, fresh_database, started

pytestmark = pytest.mark.postgres

_ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def _untouched(database: Database, folder: Path) -> None:
    slots = f"SELECT FROM pg_replication_slots WHERE database = '{database.name}'"
    assert database.execute(slots) == []
    assert database.execute("SELECT pubname FROM pg_publication WHERE pubname <> 'own'") == []
    assert not list((folder / "lake").glob("tables/**/*.parquet"))
    assert not list((folder / "lake").glob("change_log/*.parquet"))


def _refused(command: Command, *words: str, name: str = "sync") -> None:
    answer = command(name, "--json")
    assert answer.exit_code == 1
    for word in words:
        assert word in answer.problem + answer.hint
    assert answer.document["error"]["message"] == answer.problem
    assert answer.document["error"]["hint"] == answer.hint
    assert answer.hint not in ("", answer.problem)


def test_wrong_password(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS)
    dsn = database.server.dsn(database.name, password="hunter2")
    command = configured(tmp_path, dsn, database.name, ["public.orders"])
    _refused(command, "password authentication failed")
    assert "hunter2" not in command("sync").stderr
    _untouched(database, tmp_path)


def test_table_without_a_usable_key(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id bigint)")
    _refused(configured(tmp_path, database.dsn, database.name, ["public.orders"]), "public.orders", "key")
    _untouched(database, tmp_path)


def test_missing_table_in_plain_and_in_json(database: Database, tmp_path: Path) -> None:
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
    _refused(command, "no table public.orders")
    plain = command("sync")
    assert (plain.exit_code, plain.stdout) == (1, "")
    assert "no table public.orders" in plain.problem
    _untouched(database, tmp_path)


def test_own_publication_without_the_table(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS, "CREATE PUBLICATION own")
    source = {"dsn": "{{ env.POSTGRES_CDC_TEST_DSN }}", "publication": "own"}
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"], source=source)
    _refused(command, "publication own does not publish public.orders", "ADD TABLE")
    _untouched(database, tmp_path)


def test_insufficient_privilege(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS, f"CREATE ROLE {database.name} LOGIN PASSWORD 'secret'")
    try:
        dsn = database.server.dsn(database.name, user=database.name, password="secret")
        _refused(configured(tmp_path, dsn, database.name, ["public.orders"]), "doctor")
        _untouched(database, tmp_path)
    finally:
        database.execute(f"DROP OWNED BY {database.name}", f"DROP ROLE {database.name}")


def test_lake_not_writable(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS)
    (tmp_path / "file").touch()  # no right makes a folder of a file, not even root's
    lake = {"path": str(tmp_path / "file" / "lake")}
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"], lake=lake)
    _refused(command, "lake.path")
    _untouched(database, tmp_path)


@pytest.fixture(scope="module")
def modest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that is not set up for us: no logical decoding, and one slot in all."""
    with started(18, {"wal_level": "replica", "max_replication_slots": "1"}) as server:
        yield server


def test_wal_level(modest: PostgresServer, tmp_path: Path) -> None:
    with fresh_database(modest) as database:
        database.execute(_ORDERS)
        command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
        _refused(command, "wal_level")
        _untouched(database, tmp_path)


def test_doctor_names_each_fault_and_its_remedy(modest: PostgresServer, tmp_path: Path) -> None:
    with fresh_database(modest) as database:
        database.execute("CREATE TABLE orders (id bigint)")
        answer = configured(tmp_path, database.dsn, database.name, ["public.orders", "public.none"])("doctor", "--json")
        failed = {check["what"]: check for check in answer.document["checks"] if check["verdict"] == "fail"}
        assert answer.exit_code == 1
        assert {"wal_level", "replication slots", "public.orders", "public.none"} <= set(failed)
        assert all(check["remedy"] for check in failed.values())
        _untouched(database, tmp_path)


def test_doctor_prints_problems_only(modest: PostgresServer, tmp_path: Path) -> None:
    """``--quiet``: a line for each check that failed, with its remedy, and no table."""
    with fresh_database(modest) as database:
        database.execute("CREATE TABLE orders (id bigint)")
        command = configured(tmp_path, database.dsn, database.name, ["public.orders", "public.none"])
        failed = [check for check in command("doctor", "--json").document["checks"] if check["verdict"] == "fail"]
        answer = command("doctor", "--quiet")
        assert (answer.exit_code, answer.stdout) == (1, "")
        for check in failed:
            assert f"{check['what']}: {check['found']}" in answer.stderr
            assert check["remedy"] in answer.stderr
        assert "checks failed" not in answer.stderr


def test_doctor_prints_nothing_where_all_is_well(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS)
    answer = configured(tmp_path, database.dsn, database.name, ["public.orders"])("doctor", "--quiet")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", "")


def test_no_slot_free(server: PostgresServer, tmp_path: Path) -> None:
    with fresh_database(server) as database:
        database.execute(_ORDERS)
        (limit,) = database.execute(
            "SELECT current_setting('max_replication_slots')::int - count(*)::int FROM pg_replication_slots"
        )[0]
        with psycopg.connect(database.dsn, autocommit=True) as holder:
            # temporary: they go with the connection
            holder.execute(
                "SELECT pg_create_physical_replication_slot('held_' || n, false, true) FROM generate_series(1, %s) n",
                [limit],
            )
            _refused(configured(tmp_path, database.dsn, database.name, ["public.orders"]), "max_replication_slots")
            held = database.execute(f"SELECT FROM pg_replication_slots WHERE database = '{database.name}'")
        assert held == []
        _untouched(database, tmp_path)


def test_a_table_dropped_later_holds_back_neither_the_others_nor_the_slot(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS, "CREATE TABLE items (id int PRIMARY KEY)")
    command = configured(tmp_path, database.dsn, database.name, ["public.orders", "public.items"])
    assert command("capture").exit_code == 0
    database.execute("DROP TABLE orders", "INSERT INTO items VALUES (1)")
    answer = command("capture", "--json")
    assert answer.exit_code == 1
    assert answer.problem.startswith(f"there is no table public.orders in database {database.name}")
    (landed,) = answer.document["landed"]
    assert [counts["relname"] for counts in landed["relations"]] == ["items"]
    position = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    assert database.execute(position) == [(answer.document["landed_end"],)]


def test_a_mistyped_table_is_refused_before_anything_is_made(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS)
    answer = configured(tmp_path, database.dsn, database.name, ["public.orders"])("snapshot", "--table", "public.order")
    assert answer.exit_code == 2
    assert answer.problem == "not replicated by this pipeline: public.order"
    assert answer.hint == "did you mean public.orders?"
    _untouched(database, tmp_path)


def test_verify_of_what_is_not_followed_or_not_begun(database: Database, tmp_path: Path) -> None:
    database.execute(_ORDERS)
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
    answer = command("verify", "--table", "public.order")
    assert answer.exit_code == 2
    assert answer.problem == "not replicated by this pipeline: public.order"
    assert answer.hint == "did you mean public.orders?"
    for option in (("--sample", "0"), ("--sample", "101%"), ("--sample", "nan"), ("--differences", "-1")):
        assert command("verify", *option).exit_code == 2
    both = command("verify", "--quick", "--sample", "5%")
    assert (both.exit_code, both.problem) == (2, "verify compares hashes or a sample, not both")
    assert both.hint == "choose one of them"
    _refused(command, "no change log", "sync", name="verify")
    _untouched(database, tmp_path)
