"""The three ways to Delta's jars, without fetching anything."""

from __future__ import annotations

import hashlib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError
from spark_jobs.spark.delta_jars import LOG_STORE, coordinates, delta_coordinate, jars_conf, main
from spark_jobs.spark.driver_jars import class_path, remember
from spark_jobs.spark.session_conf import session_conf


def test_the_coordinate_is_for_the_installed_spark() -> None:
    minor = ".".join(version("pyspark").split(".")[:2])
    assert delta_coordinate() == f"io.delta:delta-spark_{minor}_2.13:{version('delta-spark')}"


def test_packages_and_provided() -> None:
    assert jars_conf(SparkOptions(jars="packages")) == {"spark.jars.packages": delta_coordinate()}
    assert jars_conf(SparkOptions(jars="provided")) == {}


def test_an_object_store_adds_its_connector_in_the_version_of_sparks_hadoop() -> None:
    found = jars_conf(SparkOptions(jars="packages", store="s3"))
    packages = found["spark.jars.packages"]
    hadoop = next(Path(str(pyspark.__file__)).parent.glob("jars/hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    assert packages.startswith(f"{delta_coordinate()},org.apache.hadoop:hadoop-aws:{hadoop},software.amazon")
    assert found["spark.jars.excludes"] == "software.amazon.awssdk:bundle"
    own = (("spark.jars.packages", "a:b:1"), ("spark.jars.excludes", "c:d"))
    conf = session_conf(SparkOptions(jars="packages", store="s3", config=own))
    assert conf["spark.jars.packages"] == f"{packages},a:b:1"
    assert conf["spark.jars.excludes"] == "software.amazon.awssdk:bundle,c:d"
    assert coordinates("abfss")[1:] == (f"org.apache.hadoop:hadoop-azure:{hadoop}",)
    assert coordinates("gs")[1:] == ("org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",)


def test_a_folder_must_hold_delta_for_this_spark(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"holds no delta-spark_.*python -m spark_jobs.spark.delta_jars"):
        jars_conf(SparkOptions(jars=str(tmp_path)))
    spark = delta_coordinate().split(":")[1]
    for name in (f"io.delta_{spark}-4.4.0.jar", "delta-storage-4.4.0.jar", "other-1.jar"):
        (tmp_path / name).touch()
    ((key, value),) = jars_conf(SparkOptions(jars=str(tmp_path))).items()
    assert (key, len(value.split(","))) == ("spark.jars", 3)
    with pytest.raises(SparkError, match=r"holds no hadoop-aws-.*delta_jars .* --storage s3"):
        jars_conf(SparkOptions(jars=str(tmp_path), store="s3"))


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


def test_the_log_store_is_built_from_its_source_and_comes_with_s3_alone(tmp_path: Path) -> None:
    manifest = zipfile.ZipFile(LOG_STORE).read("META-INF/MANIFEST.MF").decode()
    digest = hashlib.sha256(LOG_STORE.with_name("ConditionalLogStore.java").read_bytes()).hexdigest()
    assert digest[:40] in manifest, "make logstore"
    for jars in ("packages", "provided"):
        assert jars_conf(SparkOptions(jars=jars, store="s3"))["spark.jars"] == str(LOG_STORE)
        assert "spark.jars" not in jars_conf(SparkOptions(jars=jars, store="gs"))


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert capsys.readouterr().err.startswith("usage:")
