"""The README is short, names the versions that pyproject.toml allows, and its commands print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.spark.java import SUPPORTED
from tests.fixtures.psql import psql_program
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database
from tests.shown_commands import masked, shown_in

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _environment(database: Database) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), str(psql_program().parent), "/usr/bin", "/bin"))
    no_java = {"JDK_JAVA_OPTIONS": "-XX:+NoSuchOption"}  # a JVM would end with it
    return {**os.environ, **no_java, "SHOP_DSN": database.dsn, "PATH": path, "COLUMNS": "200"}


@pytest.mark.postgres
def test_one_row_as_it_is_shown(database: Database, tmp_path: Path) -> None:
    """By commands of their own, without Java."""
    (configuration,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    # slot and publication are of this server and database alone
    (tmp_path / "shop.yaml").write_text(configuration.replace("name: shop\n", f"name: {database.name}\n"))
    shown = list(shown_in(README))
    assert len(shown) == 6
    for each in shown:
        ran = subprocess.run(
            ["/bin/sh", "-c", each.command],
            cwd=tmp_path,
            env=_environment(database),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), each.command
        assert masked(ran.stdout) == masked(each.output), each.command


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_the_versions_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    heads, _, cells = (line.strip("| ").split(" | ") for line in re.findall(r"^\|.*$", README, re.MULTILINE)[:3])
    said = dict(zip(heads, cells, strict=True))
    assert said["PostgreSQL"] == f"{VERSIONS[0]} to {VERSIONS[-1]}"
    assert said["Java"] == f"{SUPPORTED[0]} or {SUPPORTED[1]}, for Spark"
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
