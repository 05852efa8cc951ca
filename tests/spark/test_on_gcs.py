"""Spark on an emulator of Google's storage: everything is equal afterwards, and of those that commit one version of a
table at the same moment, with Spark or without, one has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.gcs_server import GcsServer
from tests.fixtures.servers import Database
from tests.spark.s3_pipelines import HEALTHY, TABLES, answer, assert_followed, in_store, make_tables, started

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly, pytest.mark.timeout(1200)]


def test_a_lake_is_followed_and_verified(tmp_path: Path, database: Database, gcs_server: GcsServer) -> None:
    make_tables(database)
    lake, config = gcs_server.lake(database.name), gcs_server.spark_config
    command = in_store("gs", tmp_path, database, lake, gcs_server.environment, TABLES, config=config)
    [followed, problems, healthy] = answer(started(command, "follow", "race", "doctor"))
    assert_followed(followed, "spark")
    assert problems == []
    assert healthy == HEALTHY
