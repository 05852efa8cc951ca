"""Fixtures live in plugins by family: see tests/fixtures."""

from __future__ import annotations

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
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file is one worker's, so the longest begins first: it would run alone at the end."""
    items.sort(key=lambda item: item.path.name != "test_writers.py")
