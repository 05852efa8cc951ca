"""A checkpoint that was cut off: no reader could open the table, though its commits say the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.spark.session_conf import INTERPRETED
from tests.cli.command import Command, configured
from tests.fixtures.no_spark import synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "overwritten": lambda content: bytes(len(content)),
}


PLACES = ("tables/public/item", "change_log", "cuts")


def checkpoints(table: Path) -> list[Path]:
    """The newest last."""
    return sorted(table.glob("_delta_log/*.checkpoint*.parquet"))


@pytest.fixture
def command(database: Database, jars_folder: Path, tmp_path: Path) -> Command:
    """With a checkpoint in each log."""
    spark = {"master": "local[2]", "jars": str(jars_folder), "config": INTERPRETED}
    database.execute("CREATE TABLE item (id int PRIMARY KEY, n int)", "INSERT INTO item VALUES (1, 0), (2, 0)")
    command = configured(tmp_path, database.dsn, database.name, ["public.item"], spark=spark)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    while not all(checkpoints(tmp_path / "lake" / place) for place in PLACES):
        database.execute("UPDATE item SET n = n + 1 WHERE id = 1")
        synced_without_spark(pipeline)
    return command


@pytest.mark.parametrize(("place", "how"), list(zip(PLACES, DAMAGES, strict=True)))
def test_the_commits_say_the_same(command: Command, database: Database, tmp_path: Path, place: str, how: str) -> None:
    checkpoint = checkpoints(tmp_path / "lake" / place)[-1]
    checkpoint.write_bytes(DAMAGES[how](checkpoint.read_bytes()))
    database.execute("UPDATE item SET n = n + 1")
    answer = command("sync", without_java=True)
    assert answer.exit_code == 0, answer.stderr
    assert f"{checkpoint} was damaged, and has been removed" in answer.stderr
    assert command("verify", without_java=True).exit_code == 0


def test_commits_from_before_it_are_gone(command: Command, database: Database, tmp_path: Path) -> None:
    table = tmp_path / "lake/tables/public/item"
    *earlier, checkpoint = checkpoints(table)
    last = int(checkpoint.name[:20])
    for commit in table.glob("_delta_log/*.json"):
        if commit.name[:20].isdigit() and int(commit.name[:20]) < last:
            commit.unlink()
    for older in earlier:
        older.unlink()
    checkpoint.write_bytes(DAMAGES["cut off"](checkpoint.read_bytes()))
    database.execute("UPDATE item SET n = n + 1")
    answer = command("sync")
    assert answer.exit_code == 1
    assert checkpoint.name in answer.problem
    assert f"move {table} away" in answer.hint
    assert checkpoint.exists(), "nothing is removed that says more than the commits"
    shutil.move(table, tmp_path / "away")
    assert command("sync", without_java=True).exit_code == 0
    assert command("verify", without_java=True).exit_code == 0
