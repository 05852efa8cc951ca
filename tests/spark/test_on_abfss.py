"""Spark on an emulator of Azure's storage: everything is equal afterwards, and of those that commit one version of a
table at the same moment, with Spark or without, one has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.azure_server import AzureServer
from tests.fixtures.servers import Database
from tests.spark.s3_pipelines import HEALTHY, TABLES, answer, assert_followed, in_store, make_tables, started

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly, pytest.mark.timeout(1200)]


def test_a_lake_is_followed_and_verified(tmp_path: Path, database: Database, azure_server: AzureServer) -> None:
    make_tables(database)
    lake = azure_server.lake(database.name)
    command = in_store("abfss", tmp_path, database, lake, azure_server.with_key, TABLES)
    [followed, problems, healthy] = answer(started(command, "follow", "race", "doctor"))
    assert_followed(followed, "spark")
    assert problems == []
    assert healthy == HEALTHY


def test_a_signature_will_do(tmp_path: Path, database: Database, azure_server: AzureServer) -> None:
    make_tables(database)
    lake = azure_server.lake(database.name)
    command = in_store("abfss", tmp_path, database, lake, azure_server.with_signature, TABLES)
    assert answer(started(command, "sync_once", "race", "alter", "sync_once")) == [[], [], None, []]
