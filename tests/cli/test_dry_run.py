"""``--dry-run`` says what the command then does, and does nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command import Answer, Command, configured, run_here
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, v text)",
    "CREATE TABLE items (id int PRIMARY KEY, n int)",
    "INSERT INTO orders SELECT g, repeat('x', 200) FROM generate_series(1, 20000) g",
    "INSERT INTO items SELECT g, g FROM generate_series(1, 10) g",
    "ANALYZE",
)


def _made(database: Database, folder: Path) -> tuple[object, ...]:
    """Everything that a pipeline makes or moves."""
    slots = "SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    published = "SELECT pubname::text, tablename::text FROM pg_publication_tables ORDER BY 1, 2"
    files = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    return database.execute(slots), database.execute(published), files


def _planned(command: Command, database: Database, verb: str = "sync", *, exit_code: int = 0) -> dict[str, Any]:
    before = _made(database, command.configuration.parent)
    answer = command(verb, "--dry-run", "--json")
    assert answer.exit_code == exit_code, answer.stderr
    assert _made(database, command.configuration.parent) == before
    document: dict[str, Any] = answer.document
    return document


def _read(document: dict[str, Any]) -> dict[str, str]:
    return {table["name"]: table["reason"] for table in document["snapshots"]}


def _done(command: Command, verb: str = "sync") -> Answer:
    answer = command(verb, "--json")
    assert answer.exit_code == 0, answer.stderr
    return answer


Following = Callable[[Sequence[str | dict[str, Any]]], Command]


@pytest.fixture
def following(spark: SparkSession, database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Following:
    """The command that follows these tables."""
    database.execute(*TABLES)
    return lambda tables: run_here(configured(tmp_path, database.dsn, database.name, tables), spark, capfd)


def test_what_sync_would_do_is_what_it_does(following: Following, database: Database, tmp_path: Path) -> None:
    command = following(["public.orders", "public.items"])

    first = _planned(command, database)
    log = tmp_path / "lake" / "change_log"
    assert first["creates"] == [
        f"publication {database.name} for 2 tables",
        f"slot {database.name}",
        f"change log {log}",
    ]
    assert _read(first) == dict.fromkeys(["public.orders", "public.items"], "it has no snapshot yet")
    orders, items = first["snapshots"]
    assert (orders["rows"], items["rows"]) == (20000, 10)
    assert orders["bytes"] > 20000 * 200 > items["bytes"] > 0
    assert orders["seconds"] > 0
    shown = command("sync", "--dry-run").stdout
    assert f"would create slot {database.name}" in shown
    assert "reading alone takes about 0:00:0" in shown
    assert shown.endswith("nothing was done\n")
    assert _read(_done(command).document) == dict.fromkeys(["public.orders", "public.items"], "")

    quiet = _planned(command, database)
    assert (quiet["creates"], quiet["snapshots"], quiet["columns"]) == ([], [], [])

    database.execute("UPDATE orders SET v = 'y' WHERE id < 100", "ALTER TABLE items ADD c int DEFAULT 5")
    followed = _planned(command, database)
    assert followed["lag_bytes"] > 0
    assert followed["snapshots"] == []
    assert followed["columns"] == [{"name": "public.items", "changes": ["column c was added"]}]
    assert _done(command).document["snapshots"] == []

    database.execute("UPDATE orders SET v = 'z' WHERE id < 100")
    _done(command, "capture")
    assert _planned(command, database)["pending_changes"] == 99

    database.execute("ALTER TABLE items ALTER n TYPE text")
    planned = _planned(command, database)
    assert list(_read(planned)) == ["public.items"]
    assert "the type of column n was changed" in _read(planned)["public.items"]
    assert planned["columns"] == []
    assert list(_read(_done(command).document)) == ["public.items"]


def test_another_mode_and_another_table(following: Following, database: Database, tmp_path: Path) -> None:
    _done(following(["public.orders"]))
    command = following([{"name": "public.orders", "mode": "soft_delete"}, "public.items"])
    planned = _planned(command, database)
    assert planned["creates"] == [f"public.items in publication {database.name}"]
    assert _read(planned) == {
        "public.orders": "its mode was mirror and is soft_delete: it is built from the change log if that reaches back"
        " far enough",
        "public.items": "it has no snapshot yet",
    }
    done = _done(command).document
    assert [table["name"] for table in done["modes"]] == ["public.orders"]
    assert list(_read(done)) == ["public.items"]


def test_a_table_that_would_stop_is_a_problem(following: Following, database: Database, tmp_path: Path) -> None:
    command = following(["public.orders", "public.items"])
    _done(command)
    database.execute("DROP TABLE items")
    planned = _planned(command, database, exit_code=1)
    (stopped,) = planned["stopped"]
    assert stopped["name"] == "public.items"
    assert "there is no table public.items" in stopped["error"]["message"]
    assert planned["snapshots"] == []
    assert command("sync", "--json").exit_code == 1


def test_a_change_that_is_refused_stops_the_table_there_too(
    following: Following, database: Database, tmp_path: Path
) -> None:
    refusing = {"name": "public.items", "on_schema_change": {"add": "stop", "retype": "stop"}}
    command = following([refusing, "public.orders"])
    _done(command)
    database.execute("ALTER TABLE items ADD c int", "ALTER TABLE orders ADD c int")
    planned = _planned(command, database, exit_code=1)
    (stopped,) = planned["stopped"]
    assert "column c was added, and on_schema_change says add: stop" in stopped["error"]["message"]
    assert [table["name"] for table in planned["columns"]] == ["public.orders"]
    (listed,) = [table for table in command("status", "--json").document["tables"] if table["error"]]
    assert listed["error"] == stopped["error"]
    assert "column c was added, and on_schema_change says add: stop" in command("sync").problem


def test_what_recover_would_do_is_what_it_does(following: Following, database: Database, tmp_path: Path) -> None:
    command = following(["public.orders", "public.items"])
    none = command("recover", "--dry-run")
    assert none.exit_code == 1
    assert "no change log" in none.problem
    _done(command)
    assert "there is nothing to recover" in command("recover", "--dry-run").stdout

    database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")
    broken = command("sync", "--dry-run")
    assert broken.exit_code == 1
    assert f"slot {database.name} is gone" in broken.problem
    planned = _planned(command, database, "recover")
    assert f"slot {database.name} is gone" in planned["broken"]
    assert planned["creates"][0] == f"slot {database.name}"
    assert set(_read(planned)) == {"public.orders", "public.items"}
    assert set(_read(_done(command, "recover").document)) == set(_read(planned))
    assert "there is nothing to recover" in command("recover", "--dry-run").stdout
