"""Fixtures live in plugins by family: see tests/fixtures."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.property_tests",
    "tests.fixtures.servers",
    "tests.fixtures.spark",
    "tests.fixtures.pipelines",
    "tests.fixtures.object_store",
]
