"""``maintain`` before any table has its snapshot: the log alone, without Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import configured
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_the_log_without_java(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
    nothing = command("maintain")
    assert nothing.exit_code == 1
    assert "there is no change log" in nothing.problem
    for row in range(3):
        database.execute(f"INSERT INTO orders VALUES ({row})")
        assert command("capture").exit_code == 0
    answer = command("maintain", "--json", without_java=True)
    assert answer.exit_code == 0, answer.stderr
    report = json.loads(answer.stdout)
    assert report["change_log"]["files_before"] > 1
    assert report["change_log"]["files_after"] == 1
    assert (report["first_window"], report["held_by"], report["cuts"], report["tables"]) == (0, "", None, [])
    again = command("maintain")
    assert again.exit_code == 0
    assert "the change log reaches back to window 0" in again.stdout
    database.execute("INSERT INTO orders VALUES (9)")
    assert command("capture").exit_code == 0
