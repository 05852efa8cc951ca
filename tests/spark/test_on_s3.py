"""Spark on a real S3 server: everything is equal afterwards, and of two drivers nobody loses a commit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.configuration import MergeEngine
from tests.at_night import at_night
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database
from tests.fixtures.store_proxy import Rule, StoreProxy, every, lost_commits, through
from tests.spark.s3_pipelines import HEALTHY, TABLES, answer, assert_followed, make_tables, on_s3, started

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

APPENDS = 12


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("tables", "syncs"), [(TABLES[:3], 6), at_night(TABLES, 12)], ids=["three", "all"])
def test_a_lake_is_followed_and_verified(
    database: Database, s3_server: S3Server, tmp_path: Path, tables: list[str | dict[str, str]], syncs: int
) -> None:
    """A table whose rows have a key, and whose name a URI escapes, one that is truncated, and a plain one. Each log
    gets a checkpoint after five commits."""
    make_tables(database)
    command = on_s3(tmp_path, database, s3_server, tables)
    count = f"count_requests {s3_server.metrics} {syncs}"
    [followed, written, costs, healthy] = answer(started(command, "follow", "write_one_version_twice", count, "doctor"))
    assert_followed(followed, "spark", len(tables))
    assert written == ["written", "written", "FileAlreadyExistsException", "written"], (
        "the second is the first one, again"
    )
    sys.stdout.write(f"syncs of one changed table by Spark: {costs} requests\n")
    assert max(map(max, costs)) <= 110
    assert healthy == HEALTHY


FAULTS: dict[str, Callable[[], Rule]] = {
    "refused": lambda: every(7, "busy", "broken"),
    "unanswered": lambda: every(7, "lost", "dropped"),
    "late": lambda: every(2, "late"),
    "lost commits": lost_commits,
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_store_cost_time(
    database: Database,
    s3_server: S3Server,
    store_proxy: StoreProxy,
    tmp_path: Path,
    engine: MergeEngine,
    fault: str,
) -> None:
    make_tables(database)
    command = on_s3(tmp_path, database, through(store_proxy, s3_server), TABLES, engine)
    with store_proxy.under(FAULTS[fault]()):
        [followed, back] = answer(started(command, "follow", "go_back"))
    assert_followed(followed, engine)
    assert back == {
        "errors": [],
        "replayed": [["applied"] * 4, ["rebuilt"] * 4],
        "as of": "equal",
        "snapshots": 4,
        "problems": [],
    }


@pytest.mark.nightly
def test_two_drivers_that_write_one_table_lose_nothing(database: Database, s3_server: S3Server, tmp_path: Path) -> None:
    command = on_s3(tmp_path, database, s3_server, TABLES)
    assert answer(started(command, "append 0 1")) == [1]
    writers = [started(command, f"append {first} {APPENDS}") for first in (100, 200)]
    assert [answer(writer) for writer in writers] == [[APPENDS], [APPENDS]]
    assert answer(started(command, "count")) == [1 + 2 * APPENDS]
