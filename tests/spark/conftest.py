"""What tests of other kinds of Spark share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.snapshot import table_read
from spark_jobs.writers import write_choice
from tests.fixtures import spark_connect


@pytest.fixture
def read_by_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every table were large, and Spark a cluster: executors read it for its snapshot, and not this process."""
    monkeypatch.setattr(table_read, "_SMALL_BYTES", -1)
    monkeypatch.setattr(write_choice, "runs_on_driver", lambda _: False)


@pytest.fixture
def without_our_package(tmp_path: Path) -> Path:
    """A folder that, on the PYTHONPATH of an executor, makes any import of ours fail: all must have been shipped."""
    folder = tmp_path / "shadow"
    folder.mkdir()
    (folder / "spark_jobs.py").write_text("raise ImportError('executors have nothing of ours on their path')\n")
    return folder


@pytest.fixture
def connect_server(jars_folder: Path, without_our_package: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a Spark Connect server whose executors have nothing of ours."""
    with spark_connect.connect_server(tmp_path, jars_folder, pythonpath=str(without_our_package)) as server:
        yield server.url
