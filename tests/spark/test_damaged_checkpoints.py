"""A checkpoint that was cut off: no reader could open the table, though its commits say the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command, configured
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "overwritten": lambda content: bytes(len(content)),
}


def newest_checkpoint(table: Path) -> Path:
    return max(table.glob("_delta_log/*.checkpoint*.parquet"))


@pytest.fixture
def command(database: Database, jars_folder: Path, tmp_path: Path) -> Command:
    """With a checkpoint in each log."""
    spark = {"master": "local[2]", "jars": str(jars_folder)}
    database.execute("CREATE TABLE item (id int PRIMARY KEY, n int)", "INSERT INTO item VALUES (1, 0), (2, 0)")
    command = configured(tmp_path, database.dsn, database.name, ["public.item"], spark=spark)
    for _ in range(7):
        database.execute("UPDATE item SET n = n + 1 WHERE id = 1")
        assert command("sync", without_java=True).exit_code == 0
    return command


@pytest.mark.parametrize(
    ("place", "how"), [("tables/public/item", "cut off"), ("change_log", "empty"), ("cuts", "overwritten")]
)
def test_the_commits_say_the_same(command: Command, database: Database, tmp_path: Path, place: str, how: str) -> None:
    checkpoint = newest_checkpoint(tmp_path / "lake" / place)
    checkpoint.write_bytes(DAMAGES[how](checkpoint.read_bytes()))
    database.execute("UPDATE item SET n = n + 1")
    answer = command("sync", without_java=True)
    assert answer.exit_code == 0, answer.stderr
    assert f"{checkpoint} was damaged, and has been removed" in answer.stderr
    assert command("verify", without_java=True).exit_code == 0


def test_commits_from_before_it_are_gone(command: Command, database: Database, tmp_path: Path) -> None:
    table = tmp_path / "lake/tables/public/item"
    checkpoint = newest_checkpoint(table)
    last = int(checkpoint.name[:20])
    for commit in table.glob("_delta_log/*.json"):
        if commit.name[:20].isdigit() and int(commit.name[:20]) < last:
            commit.unlink()
    for older in table.glob("_delta_log/*.checkpoint*.parquet"):
        if older != checkpoint:
            older.unlink()
    checkpoint.write_bytes(DAMAGES["cut off"](checkpoint.read_bytes()))
    database.execute("UPDATE item SET n = n + 1")
    answer = command("sync")
    assert answer.exit_code == 1
    assert checkpoint.name in answer.problem
    assert f"move {table} away" in answer.hint
    assert checkpoint.exists(), "nothing is removed that says more than the commits"
    shutil.move(table, tmp_path / "away")
    assert command("sync").exit_code == 0
    assert command("verify").exit_code == 0
