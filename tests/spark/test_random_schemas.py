"""A few rounds of ``make schemas``: random tables, DDL and options, the lake compared after each sync."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from tests.random_schemas.campaign import ROUNDS_OF_A_WORLD, run_campaign

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_SEED = 1


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_random_schemas_are_followed(
    spark: SparkSession, postgres_15: PostgresServer, postgres_18: PostgresServer, tmp_path: Path
) -> None:
    figures = run_campaign(spark, [postgres_15, postgres_18], tmp_path, ROUNDS_OF_A_WORLD, _SEED)
    assert figures.differences == []
    assert figures.rounds == ROUNDS_OF_A_WORLD
    assert figures.ddl > 0
    assert figures.windows > 0
