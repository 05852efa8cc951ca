"""Money that moves between tables while they are followed: at every cut its sum is what it always was."""

from __future__ import annotations

import os
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import WindowLimits
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.replay.consistent_cut import ConsistentCut, consistent_cut
from spark_jobs.sync import sync
from tests.cli.command import DSN_VARIABLE, configured
from tests.fixtures.background import endless, in_background
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DOCUMENT = Path(__file__).parents[2] / "docs" / "consistent_cuts.md"
TABLES = ("public.checking", "public.savings")
ACCOUNTS = 40
TOTAL = 2 * ACCOUNTS * 100


def transfer(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Between the two tables and within them in one transaction; now and then an account gets another number."""
    # checking before savings, low numbers first: no deadlock
    low, high = sorted(chance.sample(range(ACCOUNTS), 2))
    amount = chance.randint(1, 50)
    with connection.transaction():
        connection.execute("UPDATE checking SET balance = balance - %s WHERE id = %s", [amount, low])
        connection.execute("UPDATE checking SET balance = balance + 1 WHERE id = %s", [high])
        connection.execute("UPDATE savings SET balance = balance + %s WHERE abs(id) = %s", [amount - 1, low])
    if chance.random() < 0.1:
        connection.execute("UPDATE savings SET id = -id WHERE abs(id) = %s", [high])


def documented(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def total_at(spark: SparkSession, cut: ConsistentCut) -> int:
    rows = [
        spark.read.format("delta").option("versionAsOf", table.delta_version).load(table.path).agg({"balance": "sum"})
        for table in cut.tables
    ]
    return sum(int(frame.collect()[0][0]) for frame in rows)


def test_the_sum_is_constant_at_every_cut_and_the_documents_snippets_see_it(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("checking", "savings"):
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)",
            f"INSERT INTO {table} SELECT g, 100 FROM generate_series(0, {ACCOUNTS - 1}) g",
        )
    pipeline = replace(
        pipeline_of(database, tmp_path / "lake", *TABLES), windows=WindowLimits(max_bytes=256 << 10, max_per_run=3)
    )
    writers = (endless(transfer, database, seed) for seed in (1, 2))
    with in_background(*writers, pause=0.05), database.connect() as connection:
        for seed in range(3):
            transfer(connection, random.Random(seed))  # noqa: S311 - each run has something to apply
            assert sync(pipeline, lambda: spark).errors == ()
    written = DeltaTable(pipeline.lake.cuts).to_pyarrow_table(columns=["cut", "window", "lsn"]).to_pylist()
    by_lsn = {row["lsn"]: row["window"] for row in written}
    assert len(by_lsn) > 2
    cuts = [consistent_cut(pipeline, Lsn(lsn)) for lsn in sorted(by_lsn)]
    assert [(cut.lsn, cut.window) for cut in cuts] == sorted(by_lsn.items())
    assert {tuple(str(table.name) for table in cut.tables) for cut in cuts} == {TABLES}
    assert {total_at(spark, cut) for cut in cuts} == {TOTAL}
    assert len({cut.tables for cut in cuts}) > 2, "the tables stood still"
    assert consistent_cut(pipeline, Lsn(cuts[1].lsn - 1)) == cuts[0]
    time = cuts[-2].commit_time
    assert time is not None
    at_time = consistent_cut(pipeline, time)
    assert at_time in cuts[-3:]  # clocks of two sessions may differ by a moment
    assert at_time.commit_time is not None
    assert at_time.commit_time <= time
    assert consistent_cut(pipeline) == cuts[-1]

    answer = configured(tmp_path, database.dsn, database.name, list(TABLES))("cut", "--json", without_java=True)
    assert answer.document["lsn"] == str(cuts[-1].lsn)
    assert answer.document["tables"][0]["path"] == f"{pipeline.lake.path}/tables/public/checking"
    (tmp_path / "pipeline.yaml").rename(tmp_path / "shop.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DSN_VARIABLE, database.dsn)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    python, views = documented("python")
    names: dict[str, Any] = {"spark": spark}
    exec(python, names)  # noqa: S102 - the document's own
    exec(views, names)  # noqa: S102
    assert names["total"] == TOTAL
    (statement,) = documented("sql")
    for version in cuts[-1].tables:
        example = rf"`/data/lake/shop/tables/{version.name.path}` VERSION AS OF \d+"
        statement, count = re.subn(example, f"`{version.path}` VERSION AS OF {version.delta_version}", statement)
        assert count == 1
    assert spark.sql(statement).collect()[0][0] == TOTAL
    both = "SELECT balance FROM public_checking UNION ALL SELECT balance FROM public_savings"
    assert spark.sql(f"SELECT sum(balance) FROM ({both})").collect()[0][0] == TOTAL
