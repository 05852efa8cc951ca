"""``postgres-cdc follow``, for real: a process that goes on through what strikes it, until it is told to stop."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.follow import Follower, FollowRound
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session_conf import INTERPRETED
from spark_jobs.status import pipeline_status
from tests.cli.command import SPARK, configured
from tests.cli.following import following
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]


def test_it_goes_on_until_it_is_told_to_stop(
    database: Database, spark: SparkSession, jars_folder: Path, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10,2))",
        "INSERT INTO orders SELECT g, 'n' || g FROM generate_series(1, 50) g",
    )
    names = (QualifiedName("public", "orders"), QualifiedName("public", "items"))
    lake = Followed(spark, database, pipeline_of(database, tmp_path / "lake"), names)
    options = {"master": "local[2]", "jars": str(jars_folder), "config": INTERPRETED}
    command = configured(
        tmp_path, database.dsn, database.name, ["public.orders", "public.items"], spark=options, merge=SPARK
    )
    health = tmp_path / "health.json"
    with following(command, "--json", "--every", "1s", "--health-file", str(health)) as process:
        first = process.wait_for(lambda done: done["snapshots"])
        assert (first["lag_bytes"], first["lag_seconds"]) == (None, None)  # what came meanwhile is not known yet
        assert sorted(first["snapshots"]) == ["public.items", "public.orders"]

        database.execute("UPDATE orders SET note = 'changed' WHERE id <= 10", "INSERT INTO items VALUES (1, 2.5)")
        assert process.wait_until_shown()["errors"] == []
        lake.assert_equal()

        process.kill_jvm()
        database.execute("DELETE FROM orders WHERE id > 40")
        process.wait_for(lambda done: done["applied"] == ["public.orders"])
        process.wait_for(lambda done: not done["errors"])

        database.execute("ALTER TABLE items RENAME TO articles", "INSERT INTO orders VALUES (60, 'beside it')")
        process.wait_for(lambda done: done["applied"] == ["public.orders"])
        (error,) = process.wait_for(lambda done: done["errors"])["errors"]
        assert error.startswith("there is no table public.items in database")
        database.execute("ALTER TABLE articles RENAME TO items", "UPDATE items SET price = 3")
        process.wait_for(lambda done: "public.items" in (*done["applied"], *done["snapshots"]))
        process.wait_until_shown()

        assert json.loads(health.read_text()).keys() == first.keys()
        database.execute("INSERT INTO orders VALUES (61, 'in the last moment')")
        process.process.send_signal(signal.SIGTERM)
        last = process.wait_for_end()
    assert last["is_last"]
    assert {table.pending_windows for table in pipeline_status(lake.pipeline).tables} == {0}, (
        "what is captured is applied"
    )
    if not last["lag_bytes"]:
        lake.assert_equal()


def test_what_was_captured_is_applied_at_once(database: Database, tmp_path: Path) -> None:
    """Capturing and applying both work once per interval. They are in step: neither waits for the other's next hour."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    stopping = threading.Event()
    applied: list[QualifiedName] = []

    def report(done: FollowRound) -> None:
        if done.snapshots:
            database.execute("INSERT INTO t VALUES (1)")
        applied.extend(done.applied)
        if done.applied or done.errors:
            stopping.set()

    pipeline = pipeline_of(database, tmp_path / "lake", "public.t")
    Follower(pipeline, no_spark, every=3600, stopping=stopping, report=report).run()
    assert applied == [QualifiedName("public", "t")]


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    command = configured(tmp_path, "host=nowhere", "shop", ["public.orders"])
    wrong = command("follow", "--every", "often")
    assert (wrong.exit_code, wrong.problem[:44]) == (2, "Invalid value for '--every': 'often' is not ")
    nowhere = command("follow", "--health-file", str(tmp_path / "none" / "health"))
    assert nowhere.exit_code == 2
    assert "is not a folder that can be written" in nowhere.problem
