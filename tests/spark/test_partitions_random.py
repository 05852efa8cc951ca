"""Random changes of partitioned tables and their partitions, some while they are read: compared after each round."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psycopg
import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.table_range import TableRange
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database, fresh_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_SLOTS, _WIDTH = 8, 10
_DOC = "repeat(md5(random()::text), 100)"
# came: it is a partition since the last look, and one that also goes before the next leaves no trace
_Place = Literal["in", "came", "out", "none"]


@dataclass
class _Cut:
    """A table of ``_SLOTS`` places for partitions, by ranges or by lists, and what stands at each place."""

    name: str
    by: Literal["RANGE", "LIST"]
    chance: random.Random
    places: list[_Place] = field(default_factory=list)

    def create(self) -> list[str]:
        self.places = ["in"] * _SLOTS
        return [
            (
                f"CREATE TABLE {self.name} (part int, id int, t text, doc text, PRIMARY KEY (part, id))"
                f" PARTITION BY {self.by} (part)"
            ),
            f"ALTER TABLE {self.name} ALTER doc SET STORAGE EXTERNAL",
            *(self._partition(slot) for slot in range(_SLOTS)),
            (
                f"INSERT INTO {self.name} SELECT p, i, 'a', {_DOC} FROM generate_series(0, {_SLOTS * _WIDTH - 1}) p,"
                " generate_series(1, 5) i"
            ),
        ]

    def looked_at(self) -> None:
        self.places = ["in" if place == "came" else place for place in self.places]

    def change(self) -> list[str]:
        slot = self.chance.randrange(_SLOTS)
        if self.chance.random() < 0.6:
            return [self._rows()]
        leaf, bounds = f"{self.name}_{slot}", self._bounds(slot)
        detach = f"ALTER TABLE {self.name} DETACH PARTITION {leaf}"
        attach = f"ALTER TABLE {self.name} ATTACH PARTITION {leaf} {bounds}"
        unseen = f"UPDATE {leaf} SET t = 'unseen', doc = {_DOC} WHERE id = {self._id()}"
        fill = f"INSERT INTO {leaf} SELECT {self._part(slot)}, i, 'alone', {_DOC} FROM generate_series(1, 3) i"
        alone = f"CREATE TABLE {leaf} (LIKE {self.name} INCLUDING ALL)"
        ways: dict[_Place, list[tuple[_Place, list[str]]]] = {
            "in": [
                ("out", [detach]),
                ("none", [f"DROP TABLE {leaf}"]),
                ("in", [detach, unseen, f"DELETE FROM {leaf} WHERE id = {self._id()}", attach]),
                ("came", [f"DROP TABLE {leaf}", self._partition(slot), fill.replace(leaf, self.name, 1)]),
            ],
            "out": [("came", [unseen, attach]), ("none", [f"DROP TABLE {leaf}"]), ("out", [unseen])],
            "none": [("came", [self._partition(slot)]), ("came", [alone, fill, attach]), ("came", [alone, attach])],
            "came": [("came", [unseen])],
        }
        self.places[slot], statements = self.chance.choice(ways[self.places[slot]])
        return statements

    def _rows(self) -> str:
        there = [slot for slot in range(_SLOTS) if self.places[slot] in ("in", "came")] or [0]
        part, other = (self._part(self.chance.choice(there)) for _ in range(2))
        free = self.chance.randrange(1000, 1_000_000)
        return self.chance.choice(
            [
                f"INSERT INTO {self.name} VALUES ({part}, {self._id()}, 'new', {_DOC}) ON CONFLICT DO NOTHING",
                f"UPDATE {self.name} SET t = t || '!' WHERE id = {self._id()}",  # keeps its document
                f"UPDATE {self.name} SET part = {other}, id = {free} WHERE part = {part} AND id = {self._id()}",
                f"UPDATE {self.name} SET id = {free} WHERE part = {part} AND id = {self._id()}",
                f"DELETE FROM {self.name} WHERE part = {part} AND id = {self._id()}",
                f"UPDATE {self.name} SET doc = {_DOC} WHERE part = {part}",
            ]
        )

    def _partition(self, slot: int) -> str:
        return f"CREATE TABLE {self.name}_{slot} PARTITION OF {self.name} {self._bounds(slot)}"

    def _bounds(self, slot: int) -> str:
        first = slot * _WIDTH
        if self.by == "RANGE":
            return f"FOR VALUES FROM ({first}) TO ({first + _WIDTH})"
        return f"FOR VALUES IN ({', '.join(map(str, range(first, first + _WIDTH)))})"

    def _part(self, slot: int) -> int:
        return slot * _WIDTH + self.chance.randrange(_WIDTH)

    def _id(self) -> int:
        return self.chance.randrange(1, 8)


def changed(database: Database, tables: list[_Cut], times: int) -> None:
    for _ in range(times):
        for table in tables:
            for statement in table.change():
                _executed(database, statement)


def _executed(database: Database, statement: str) -> None:
    """A row that would have no partition, or a key twice, is a change that does not come to be."""
    try:
        database.execute(statement)
    except (psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation):
        assert not statement.startswith(("CREATE", "ALTER", "DROP")), statement


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "on_driver"), [(1, True), (3, False)], ids=["on the driver", "on executors"])
def test_random_changes_of_partitions(
    spark: SparkSession,
    postgres_17: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    on_driver: bool,
) -> None:
    monkeypatch.setattr(TableRange, "is_small", on_driver)
    chance = random.Random(seed)  # noqa: S311 - nothing is kept secret by it
    tables = [_Cut("ranges", "RANGE", chance), _Cut("lists", "LIST", chance)]
    names = tuple(QualifiedName("public", table.name) for table in tables)
    read = whole = 0
    with fresh_database(postgres_17) as database:
        for table in tables:
            database.execute(*table.create())
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names))
        pipeline = pipeline if on_driver else replace(pipeline, writes=WriteLimits(in_memory_bytes=0))
        assert sync(pipeline, lambda: spark).errors == ()
        for number in range(5):
            changed(database, tables, chance.randrange(1, 8))
            if number % 2:
                _while_it_changes(lambda: sync(pipeline, lambda: spark), lambda: changed(database, tables, 3))
            report = sync(pipeline, lambda: spark)
            assert report.errors == ()
            differing = [found for found in compare(spark, pipeline, names) if not found.equal]
            assert differing == [], (seed, number)
            read += sum(done.partitions is not None for done in report.tables)
            whole += len(report.snapshots)
            for table in tables:
                table.looked_at()
    assert read > 4
    assert whole <= 1, "a value may depend on a row that nobody sent"


def _while_it_changes(work: Callable[[], object], change: Callable[[], None]) -> None:
    """What stops a table for now is mended by the next sync."""
    beside = threading.Thread(target=change)
    beside.start()
    work()
    beside.join()
