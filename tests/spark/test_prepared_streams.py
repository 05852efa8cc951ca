"""Transactions that are streamed and then prepared, and who relies on what they announced, on live servers.

Since PostgreSQL 19 an announcement in a stream counts for all once the stream is prepared: a plain transaction comes
without one, while the prepared transaction may be committed in a later window, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Pipeline
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database, each_version, fresh_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TABLES = ("public.item", "public.feeling", "public.region")
SCHEMA = (
    "CREATE TABLE item (id int PRIMARY KEY, v text)",
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE feeling (id int PRIMARY KEY, m mood)",
    "CREATE TABLE region (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE region_low PARTITION OF region FOR VALUES FROM (0) TO (10000)",
    "CREATE TABLE region_high PARTITION OF region FOR VALUES FROM (10000) TO (20000)",
    "INSERT INTO item SELECT g, 'start' FROM generate_series(1, 9) g",
    "INSERT INTO feeling VALUES (1, 'sad')",
    "INSERT INTO region VALUES (1, 'low'), (10001, 'high')",
)
# more than the 64 kB that the server holds of a transaction before it streams it
LARGE = """
INSERT INTO item SELECT g, md5(g::text) FROM generate_series({0}, {0} + 400) g;
INSERT INTO feeling SELECT g, 'glad' FROM generate_series({0}, {0} + 400) g;
INSERT INTO region SELECT g, md5(g::text) FROM generate_series({0}, {0} + 400) g
"""


def small(number: int) -> str:
    """A plain transaction in each table."""
    return (
        f"INSERT INTO item VALUES ({number}, 'small'); UPDATE feeling SET m = 'glad' WHERE id = 1;"
        f" UPDATE region SET v = 'changed by {number}' WHERE id IN (1, 10001)"
    )


def prepared(gid: str, first: int, *before: str) -> str:
    return "; ".join(["BEGIN", *before, LARGE.format(first), f"PREPARE TRANSACTION '{gid}'"])


# each step is captured, and ends in a comparison
STEPS: dict[str, tuple[str, ...]] = {
    "prepared, and others go on": (prepared("big", 1000), small(11)),
    "committed in a later window": (small(12), "COMMIT PREPARED 'big'", small(13)),
    "prepared and committed in one window": (prepared("both", 3000), small(14), "COMMIT PREPARED 'both'", small(15)),
    "rolled back in one window": (prepared("none", 5000), small(16), "ROLLBACK PREPARED 'none'", small(17)),
    "rolled back in a later window": (prepared("later", 5000), small(18)),
    "after its end": (small(19), "ROLLBACK PREPARED 'later'", small(20)),
    "announced by a subtransaction that is rolled back": (
        prepared("part", 7000, "SAVEPOINT s", LARGE.format(15000), "ROLLBACK TO s"),
        small(21),
        "COMMIT PREPARED 'part'",
        small(22),
    ),
    "announced by a transaction that is rolled back": (f"BEGIN; {LARGE.format(15000)}; ROLLBACK", small(23)),
    "altered between two": (
        prepared("before", 10100),
        small(24),
        "COMMIT PREPARED 'before'",
        "ALTER TABLE item ADD w int",
        "ALTER TYPE mood RENAME TO humour",
        "ALTER TABLE feeling ADD w int",
        prepared("after", 12000).replace("SELECT g, 'glad' FROM", "SELECT g, 'glad', g FROM"),
        small(25),
    ),
    "the last is committed": ("COMMIT PREPARED 'after'", small(26)),
}


@dataclass(frozen=True)
class Followed:
    database: Database
    pipeline: Pipeline
    spark: SparkSession

    def step(self, *statements: str) -> None:
        self.database.execute(*statements)
        report = sync(self.pipeline, lambda: self.spark)
        assert report.errors == ()
        names = tuple(table.name for table in self.pipeline.tables or ())
        assert [found for found in compare(self.spark, self.pipeline, names) if not found.equal] == []


@pytest.fixture(params=each_version(VERSIONS[-1])[1:])  # 14 has no two_phase
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: PostgresServer = request.getfixturevalue(f"postgres_{request.param}")
    with fresh_database(server) as database:
        database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'", *SCHEMA)
        yield database


def test_each_step(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    # every window through a copy: a peek must not pass two_phase
    made = pipeline_of(database, tmp_path / "lake", *TABLES, peek_bytes=0, streaming="on", two_phase=True)
    followed = Followed(database, made, spark)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    for statements in STEPS.values():
        followed.step(*statements)
