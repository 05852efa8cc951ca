"""A disk that is full, a folder that is none, a file that is gone, an executor that fails: one line with the cause."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.spark.errors import spark_errors
from spark_jobs.storage import Location
from spark_jobs.sync import sync
from tests.fixtures.disks import Disk, small_disk
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

SECRET = "cell-4711"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def item(database: Database) -> Database:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text)",
        f"INSERT INTO item SELECT g, '{SECRET} ' || g FROM generate_series(1, 2000) g",
    )
    return database


def follow(spark: SparkSession, database: Database, lake: Path, engine: MergeEngine = "spark") -> Followed:
    pipeline = pipeline_of(database, lake, "public.item", engine=engine)
    return Followed(spark, database, pipeline, (QualifiedName("public", "item"),))


def assert_one_line(error: CdcError | None, database: Database, *words: str) -> None:
    text = str(error)
    assert isinstance(error, LakeError), text
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert "\x1b" not in text
    assert SECRET not in text
    assert database.server.password not in text


@pytest.mark.parametrize(("engine", "hint"), [("auto", "room on its disk"), ("spark", "")], ids=["driver", "executors"])
def test_a_full_disk_during_a_snapshot(
    spark: SparkSession, item: Database, disk: Disk, engine: MergeEngine, hint: str
) -> None:
    followed = follow(spark, item, disk.folder / "lake", engine)
    prepare(followed.pipeline)
    disk.spoil()
    (taken,) = snapshot(Run(followed.pipeline, lambda: spark))
    assert_one_line(taken.error, item, "public.item: snapshot at ", " failed: ", disk.said)
    assert (hint or disk.hint) in str(taken.error)
    disk.mend()
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


def test_a_full_disk_during_a_merge(spark: SparkSession, item: Database, disk: Disk) -> None:
    followed = follow(spark, item, disk.folder / "lake")
    assert sync(followed.pipeline, lambda: spark).errors == ()
    item.execute("UPDATE item SET v = v || ' again' WHERE id % 2 = 0", "DELETE FROM item WHERE id % 7 = 0")
    capture(followed.pipeline)
    disk.spoil()
    (table,) = apply(Run(followed.pipeline, lambda: spark)).tables
    assert_one_line(table.error, item, "public.item: windows ", " were not applied: ", disk.said, disk.hint)
    disk.mend()
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


def test_a_full_disk_while_a_window_is_landed(spark: SparkSession, item: Database, disk: Disk) -> None:
    followed = follow(spark, item, disk.folder / "lake")
    prepare(followed.pipeline)
    item.execute("UPDATE item SET v = v || ' again'")
    disk.spoil()
    with pytest.raises(LakeError) as full:
        capture(followed.pipeline)
    assert_one_line(full.value, item, "change_log", disk.said, "room on its disk")
    disk.mend()
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


def test_a_file_where_a_folder_is_needed(spark: SparkSession, item: Database, tmp_path: Path) -> None:
    followed = follow(spark, item, tmp_path / "lake")
    prepare(followed.pipeline)
    place = Path(followed.pipeline.lake.table(followed.names[0])).parent
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("not a folder")
    (taken,) = snapshot(Run(followed.pipeline, lambda: spark))
    assert_one_line(taken.error, item, "public.item: ", str(place))
    place.unlink()
    assert sync(followed.pipeline, lambda: spark).errors == ()
    # rows enough to be staged in a file
    item.execute(
        f"INSERT INTO item SELECT g, '{SECRET}' FROM generate_series(5000, 30000) g", "DELETE FROM item WHERE id = 1"
    )
    staging = tmp_path / "lake" / "_staging"
    staging.write_text("not a folder")
    (error,) = sync(followed.pipeline, lambda: spark).errors
    assert_one_line(error, item, "public.item: ", str(staging), "Not a directory", "check lake.path")
    staging.unlink()
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


@pytest.mark.parametrize(
    ("engine", "said"),
    [("auto", "No such file or directory"), ("spark", ".parquet does not exist")],
    ids=["driver", "executors"],
)
def test_a_data_file_that_is_gone(
    spark: SparkSession, item: Database, tmp_path: Path, engine: MergeEngine, said: str
) -> None:
    followed = follow(spark, item, tmp_path / "lake", engine)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    files = list(Path(followed.pipeline.lake.table(followed.names[0])).glob("**/*.parquet"))
    assert files
    for file in files:
        file.unlink()
    item.execute("UPDATE item SET v = 'other' WHERE id = 5")
    (error,) = sync(followed.pipeline, lambda: spark).errors
    assert_one_line(error, item, "item", said, "a file that the table names is gone", " --table 'public.item'")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ModuleNotFoundError("No module named 'nosuch'", name="nosuch"), "No module named 'nosuch': install it"),
        (ValueError(f"could not read {SECRET}"), "work stopped: PYTHON_EXCEPTION, ValueError"),
        (ValueError(f"many\nlines [{SECRET}]\nof {SECRET}"), "work stopped: PYTHON_EXCEPTION, ValueError"),
        (MemoryError(), "work stopped: MemoryError: give Spark more memory"),
        (OSError(28, "No space left on device"), "work stopped: No space left on device: the disk is full"),
        (LakeError("\x1b[31mof ours\x1b[0m\nin red", hint="mend it"), "work stopped: of ours in red: mend it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_executors_raise(spark: SparkSession, item: Database, raised: Exception, said: str) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise raised
        yield from ()

    with pytest.raises(LakeError) as stopped, spark_errors("work stopped"):
        spark.range(3).mapInArrow(fail, "id long").collect()
    assert_one_line(stopped.value, item, said)


@pytest.mark.parametrize(
    ("path", "what", "hint"),
    [
        ("s3a://b/t", "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "org.apache.hadoop:hadoop-aws:"),
        ("abfss://c@a.dfs.core.windows.net/t", "SecureAzureBlobFileSystem", "org.apache.hadoop:hadoop-azure:"),
        ("gs://b/t", "GoogleHadoopFileSystem", "org.apache.spark:spark-hadoop-cloud_2.13:"),
        ("s3://b/t", 'No FileSystem for scheme "s3"', "choose a lake.path that Spark can open"),
    ],
)
def test_a_storage_without_connector(spark: SparkSession, path: str, what: str, hint: str) -> None:
    with pytest.raises(LakeError) as failed, spark_errors("work stopped", path=Location.of(path)):
        spark.read.format("delta").load(path)
    assert what in failed.value.what
    assert hint in failed.value.hint
    assert "VERSION" not in failed.value.hint


def test_values_in_sparks_own_errors_are_not_repeated(spark: SparkSession, item: Database) -> None:
    with pytest.raises(LakeError) as cast, spark_errors("work stopped"):
        spark.sql(f"SELECT CAST(concat('{SECRET}', id) AS int) FROM range(3)").collect()
    assert_one_line(cast.value, item, "work stopped: CAST_INVALID_INPUT, SparkNumberFormatException")
    with pytest.raises(LakeError) as raised, spark_errors("work stopped"):
        spark.sql(f"SELECT raise_error('[{SECRET.upper()}] {SECRET}')").collect()
    assert_one_line(raised.value, item, "work stopped: USER_RAISED_EXCEPTION")


_TOO_LARGE = """
import sys
from spark_jobs.configuration import SparkOptions
from spark_jobs.storage import Location
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import spark_session
from spark_jobs.storage import Location

spark = spark_session(SparkOptions(master="local[1]", jars=sys.argv[1]))
with spark_errors("work stopped"):
    spark.sql("SELECT length(repeat('x', int(2000000000 + id))) FROM range(1)").collect()
"""


def test_too_little_memory(jars_folder: Path) -> None:
    """In a process of its own: local Spark's JVM ends with it, sooner or later than the answer comes."""
    command = [sys.executable, "-c", _TOO_LARGE, str(jars_folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in answer.stderr.splitlines() if line.startswith("spark_jobs.errors.LakeError: ")]
    assert len(said) == 1, answer.stderr
    assert "work stopped: " in said[0]
    assert "spark.driver.memory" in said[0]
