"""A slot of the pipeline's name that no pipeline of this database can read: each command says the same of it, whether
there is a change log or not. None calls it lost, as ``recover`` would not help."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import configured
from tests.fixtures.servers import Database, fresh_database

pytestmark = pytest.mark.postgres

KINDS = {
    "is a physical slot": "SELECT pg_create_physical_replication_slot('{}', true)",
    "belongs to database": "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
    "uses the output plugin test_decoding": "SELECT pg_create_logical_replication_slot('{}', 'test_decoding')",
}


@pytest.mark.parametrize("said", KINDS)
@pytest.mark.parametrize("synced", [False, True], ids=["new", "synced"])
def test_each_command_says_whose_it_is(database: Database, tmp_path: Path, said: str, *, synced: bool) -> None:
    name, drop = database.name, f"SELECT pg_drop_replication_slot('{database.name}')"
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    command = configured(tmp_path, database.dsn, name, ["public.orders"])
    if synced:
        assert command("sync").exit_code == 0
        database.execute(drop)
    with fresh_database(database.server) as other:
        (other if said == "belongs to database" else database).execute(KINDS[said].format(name))
        try:
            for call in (["sync"], ["sync", "--dry-run"], ["status"], *([["recover"], ["verify"]] if synced else [])):
                answer = command(*call)
                assert answer.exit_code == 1, call
                assert answer.problem.startswith(f"slot {name} {said}"), call
                assert "source.slot" in answer.hint, call
            assert said.split()[-1] in " ".join(command("doctor").stdout.split())
        finally:
            database.execute(drop)
