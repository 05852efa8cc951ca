"""A connection pooler between us and the server: doctor says beforehand what sync would stop at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

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
