"""Fixtures live in plugins by family: see tests/fixtures."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

# what fails in a module that tests share is told as in a test: with both sides
pytest.register_assert_rewrite(*(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir()))

pytest_plugins = [
    "tests.fixtures.property_tests",
    "tests.fixtures.servers",
    "tests.fixtures.spark",
    "tests.fixtures.pipelines",
    "tests.fixtures.object_store",
    "tests.fixtures.s3_server",
    "tests.fixtures.store_proxy",
    "tests.fixtures.gcs_server",
    "tests.fixtures.azure_server",
    "tests.fixtures.installed_wheel",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is collected, some million objects, is garbage before the end: to look through it again and
    again took half of the collection's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# a file is one worker's: these would run alone at the end
_BEGIN_FIRST = ("test_dagster_dev.py", "test_writers.py", "test_persons_path.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _BEGIN_FIRST)
