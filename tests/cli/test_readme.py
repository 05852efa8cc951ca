"""The README is short, and names the versions that pyproject.toml allows. Its commands: see test_persons_path."""

from __future__ import annotations

import re
from pathlib import Path

from spark_jobs.spark.java import SUPPORTED
from tests.fixtures.server_binaries import VERSIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_the_versions_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    heads, _, cells = (line.strip("| ").split(" | ") for line in re.findall(r"^\|.*$", README, re.MULTILINE)[:3])
    said = dict(zip(heads, cells, strict=True))
    assert said["PostgreSQL"] == f"{VERSIONS[0]} to {VERSIONS[-1]}"
    assert said["Java"] == f"{SUPPORTED[0]}, {SUPPORTED[1]} or {SUPPORTED[2]}, for Spark"
    for name, pattern, words in (
        ("Dagster", r'"dagster>=([\d.]+),<(\d+)"', "{} or later, below {}"),
        ("Spark", r'"pyspark>=([\d.]+),<=([\d.]+)"', "{} to {}"),
        ("Delta", r'"delta-spark==([\d.]+)"', "{}"),
    ):
        found = re.search(pattern, project)
        assert found is not None
        assert said[name] == words.format(*found.groups())
    python = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', project)
    assert python is not None
    assert said["Python"] == f"3.{python[1]} to 3.{int(python[2]) - 1}"
