"""docs/readers.md tells of each reader what it does with each kind of table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers import Database
from tests.readers.matrix import ENVIRONMENT, PAGE, REQUIREMENTS, answers, table_of, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_page_names_the_versions_that_are_pinned() -> None:
    (head,) = (line for line in PAGE.read_text().splitlines() if line.startswith("| table |"))
    assert {name for name, version in versions().items() if version not in head} == {"pandas", "pyarrow"}


@pytest.fixture(scope="module")
def _environment() -> None:
    if not (ENVIRONMENT / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    subprocess.run([str(ENVIRONMENT / "bin" / "pip"), "install", "-q", "-r", str(REQUIREMENTS)], check=True)


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.usefixtures("_environment")
def test_nobody_reads_anything_wrongly(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    found = answers(spark, database, tmp_path)
    assert "WRONG" not in {answer for of_kind in found.values() for answer in of_kind.values()}
    assert table_of(found) in PAGE.read_text(), "`make readers` writes the page anew"
