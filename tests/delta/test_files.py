"""The lake's storage as a listing shows it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from spark_jobs.delta.files import files_below
from spark_jobs.storage import Location
from tests.fixtures.background import in_background


def test_files_that_are_deleted_while_they_are_listed(tmp_path: Path) -> None:
    Path(tmp_path, "z").touch()
    files = [Path(tmp_path, f"{number}.json#1") for number in range(20)]

    def created_and_deleted() -> Generator[None]:
        while True:
            for file in files:
                file.touch()
            yield
            for file in files:
                file.unlink()
            yield

    with in_background(created_and_deleted()):
        for _ in range(2_000):
            assert files_below(Location.of(str(tmp_path)))[-1].name == "z"
