"""The three ways to Delta's jars, without fetching anything."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError
from spark_jobs.spark.delta_jars import delta_coordinate, jars_conf, main
from spark_jobs.spark.driver_jars import class_path, remember


def test_the_coordinate_is_for_the_installed_spark() -> None:
    minor = ".".join(version("pyspark").split(".")[:2])
    assert delta_coordinate() == f"io.delta:delta-spark_{minor}_2.13:{version('delta-spark')}"


def test_packages_and_provided() -> None:
    assert jars_conf("packages") == (("spark.jars.packages", delta_coordinate()),)
    assert jars_conf("provided") == ()


def test_a_folder_must_hold_delta_for_this_spark(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"holds no delta-spark_.*python -m spark_jobs.spark.delta_jars"):
        jars_conf(str(tmp_path))
    spark = delta_coordinate().split(":")[1]
    for name in (f"io.delta_{spark}-4.4.0.jar", "delta-storage-4.4.0.jar", "other-1.jar"):
        (tmp_path / name).touch()
    ((key, value),) = jars_conf(str(tmp_path))
    assert (key, len(value.split(","))) == ("spark.jars", 3)


def test_what_ivy_found_is_used_again_as_long_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = SparkOptions(jars="packages")
    delta, shipped = tmp_path / "io.delta_delta-spark-4.4.0.jar", tmp_path / "org.slf4j_slf4j-api-1.0.jar"
    for jar in (delta, shipped):
        jar.write_text("classes")
    assert class_path(options) == ""
    remember(options, [f"file:{delta}", str(shipped)])
    assert class_path(options) == str(delta)
    assert class_path(SparkOptions(jars="packages", config=(("spark.jars.ivySettings", "/ivy.xml"),))) == ""
    delta.write_text("other classes")
    assert class_path(options) == ""


def test_a_folder_is_the_class_path_without_what_spark_brings(tmp_path: Path) -> None:
    artifact, version_of_delta = delta_coordinate().split(":")[1:]
    names = (f"{artifact}-{version_of_delta}.jar", "delta-storage-4.4.0.jar", "slf4j-api-1.0.jar")
    for name in names:
        (tmp_path / name).touch()
    found = class_path(SparkOptions(jars=str(tmp_path))).split(":")
    assert found == sorted(str(tmp_path / name) for name in names[:2])


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage:")
