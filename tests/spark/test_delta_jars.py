"""The three ways to Delta's jars, without fetching anything."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from spark_jobs.errors import SparkError
from spark_jobs.spark.delta_jars import delta_coordinate, jars_conf, main


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


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage:")
