"""examples/shop as a stranger tries it: an environment of its own, a week of trade, the finished graph. No Spark."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from dotenv import dotenv_values

from tests.fixtures.installed_wheel import ROOT, Shell, installed

EXAMPLE = ROOT / "examples" / "shop"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
DRIVER = Path(__file__).with_name("materialise.py")
FACTS = "SELECT id, customer, city, status, amount, placed FROM {} ORDER BY id"
FRESHNESS = "set -a; . ./.env; cd dbt && dbt source freshness"


def test_its_pins_are_those_that_everything_is_tested_with() -> None:
    """Those that the lock has: what dbt needs cannot be installed beside what builds the documentation."""
    lock = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    needed = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = dict(each.split("==") for each in needed if "==" in each)
    shared = pins.keys() & lock.keys()
    assert {"dagster", "dagster-dg-cli", "dagster-webserver", "duckdb", "duckdb-extension-delta"} <= shared
    assert {name: pins[name] for name in shared} == {name: lock[name] for name in shared}


@dataclass(frozen=True)
class Project(Shell):
    """The example in a folder of its own, installed with the wheel of this repository in an environment of its own."""

    def materialised(self, days: int) -> dict[str, Any]:
        said = self.runs(f"set -a; . ./.env; python {DRIVER} {days}")
        return dict(json.loads(said.splitlines()[-1]))

    def source(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(str(dotenv_values(self.folder / ".env")["SHOP_DSN"])) as connection:
            connection.execute("SET timezone = 'UTC'")
            return connection.execute(query.encode()).fetchall()

    def models(self, query: str, *, change: bool = False) -> list[tuple[Any, ...]]:
        """Of dbt, in DuckDB."""
        with duckdb.connect(str(self.folder / ".trial/lake.duckdb"), read_only=not change) as connection:
            connection.execute("SET timezone = 'UTC'")
            return connection.execute(query).fetchall()

    def gold(self, asset: str, day: str) -> list[tuple[Any, ...]]:
        return duckdb.sql(f"FROM '{self.folder}/.trial/lake/gold/{asset}/{day}.parquet'").fetchall()


RUNS_HERE = pytest.mark.skipif(
    sys.version_info >= (3, 14) or platform.machine() != "x86_64", reason="dbt-core 1.11, and the wheel of libfaketime"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("shop")
    ours = shutil.ignore_patterns(".env", ".trial", "target", "logs", "__pycache__")
    copy = shutil.copytree(EXAMPLE, folder / "shop", ignore=ours)
    programs = installed(folder / "venv", f"{wheel}[demo]", "--editable", str(copy))
    unset = ("DAGSTER_HOME", "PYTHONPATH", "VIRTUAL_ENV", "SHOP_DSN", "SHOP_LAKE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    # without a JVM that would start: the example needs none
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "JDK_JAVA_OPTIONS": "-XX:+NoSuchOption"}
    project = Project(copy, environment)
    project.runs("shop-trial start")
    try:
        yield project
    finally:
        project.runs("shop-trial stop")


@RUNS_HERE
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.nightly  # dbt's start takes most of the time: by day it starts twice
@pytest.mark.timeout(1800)
def test_a_week_and_what_follows(project: Project) -> None:
    assert FRESHNESS in README
    stale = project.runs(FRESHNESS, exit_code=1)
    assert stale.count("ERROR STALE freshness") == 2, "the newest rows are those of the first snapshot, a week ago"
    built = project.materialised(days=7)
    assert built["failed"] == []
    _days_show_what_was_committed_before_their_ends(project, built["complete"])
    _facts_follow(project)
    assert "PASS" in project.runs(FRESHNESS)


@RUNS_HERE
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_the_trial_to_the_finished_graph(project: Project) -> None:
    built = project.materialised(days=1)
    assert len(built["complete"]) == 7
    assert built["complete"] == built["days"], "all that have ended, and not today"
    assert {"items_add_up", "not_null_orders_of_day_day", "unique_order_facts_id"} <= {*built["checks"]}
    assert built["failed"] == []
    _days_show_what_was_committed_before_their_ends(project, built["complete"][:1])
    assert project.models(FACTS.format("order_facts")) == project.source(FACTS.format("orders"))
    ((orders,),) = project.source("SELECT count(*) FROM orders")
    assert built["operations"]["insert"] == orders - _in_snapshot(project)


def _days_show_what_was_committed_before_their_ends(project: Project, days: list[str]) -> None:
    """Orders are placed and never deleted, so the source still tells how many there were. What a status has gained by
    the log's changes is what the cuts of two days differ by."""
    before: Counter[str] = Counter()
    for day in days:
        end = date.fromisoformat(day) + timedelta(days=1)
        ((placed,),) = project.source(f"SELECT count(*) FROM orders WHERE placed < '{end}'")
        rows = project.models(f"SELECT status, orders, amount FROM orders_of_day WHERE day = '{day}'")
        statuses = Counter({status: orders for status, orders, _ in rows})
        assert statuses.total() == placed > 0
        revenue = sum(amount for status, _, amount in rows if status != "cancelled")
        assert sum(amount for _, _, amount in project.gold("revenue_by_city", day)) == revenue
        for left, entered, orders in project.gold("order_moves", day):
            before.update({entered: orders})
            if left is not None:
                before.subtract({left: orders})
        if day == days[0]:  # what the first snapshot has did not move
            before["new"] += _in_snapshot(project)
        assert +before == statuses, day


def _in_snapshot(project: Project) -> int:
    """How many orders it has: the next are two hours younger, by the server's clock."""
    ((count,),) = project.source(
        "SELECT count(*) FROM orders WHERE placed < (SELECT min(placed) FROM orders) + interval '1 min'"
    )
    return int(count)


def _facts_follow(project: Project) -> None:
    """The incremental model reads only rows that are new: what was planted among the others stays."""
    project.models("UPDATE order_facts SET city = 'planted ' || city WHERE status = 'delivered'", change=True)
    project.runs("shop-trial trade")
    project.materialised(days=0)
    followed, expected = project.models(FACTS.format("order_facts")), project.source(FACTS.format("orders"))
    planted = {row[0] for row in followed if row[2].startswith("planted")}
    assert planted
    assert [row for row in followed if row[0] not in planted] == [row for row in expected if row[0] not in planted]
    project.models("UPDATE order_facts SET city = replace(city, 'planted ', '')", change=True)
