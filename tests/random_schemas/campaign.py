"""Worlds of random tables, followed round by round: after each sync the lake must equal the source.

In a racing world transactions go on while syncs run. What one of those reports, such as a column that has another name
by the time it is read, the next one must make good.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, SnapshotOptions, WindowLimits
from spark_jobs.errors import CdcError, NeedsSnapshotError
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.apply.several_modes import in_modes
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database, fresh_database
from tests.random_schemas.options import Options, random_options
from tests.random_schemas.tables import TYPES, created
from tests.random_schemas.transactions import History, end_prepared, transact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS_OF_A_WORLD = 6
_CAPTURES_BETWEEN = 0.15
_SYNCS_OF_A_RACE = 2
_TRANSACTIONS_OF_A_RACE = 6
_PAUSE = 0.6
_ENDED_BETWEEN = 0.5
_HAS_NO_KEY = "keeps rows by their key"


@dataclass
class Figures:
    """What a campaign has seen. ``differences`` is empty if all is well."""

    seed: int
    rounds: int = 0
    worlds: int = 0
    statements: int = 0
    ddl: int = 0
    refused: int = 0
    snapshots: int = 0
    by_hand: int = 0
    windows: int = 0
    seconds: float = 0
    differences: list[str] = field(default_factory=list)

    def differ(self, *differences: str) -> None:
        """Shown at once: a campaign that is stopped must not keep what it found to itself."""
        self.differences += differences
        sys.stderr.writelines(f"\n{each}\n" for each in differences)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: {self.rounds} rounds in {self.worlds} worlds, {self.seconds:.0f} s",
                f"statements {self.statements}, of them DDL {self.ddl}, refused by the server {self.refused}",
                f"windows {self.windows}, tables read again {self.snapshots}, of them by hand {self.by_hand}",
                f"differences: {len(self.differences)}",
                *(f"  {difference}" for difference in self.differences),
            ]
        )


@dataclass(frozen=True)
class _World:
    """One database with its tables, and the lake that follows it. ``further``: what the lake has of the tables in
    another mode. ``chance`` decides all that happens in it, except when: ``races`` or not."""

    spark: SparkSession
    database: Database
    pipeline: Pipeline
    names: tuple[QualifiedName, ...]
    further: tuple[QualifiedName, ...]
    chance: random.Random
    history: History
    races: bool

    def round(self, figures: Figures) -> list[str]:
        """Random transactions, a sync, and the comparison: the differences, or the error that ended it."""
        try:
            return self._round(figures)
        except CdcError as error:
            return [f"{type(error).__name__}: {error}"]

    def _round(self, figures: Figures) -> list[str]:
        tables = [str(name) for name in self.names]
        with _connection(self.database) as connection:
            for _ in range(self.chance.randint(1, 6)):
                transact(connection, self.chance, tables, self.history)
                if self.chance.random() < _CAPTURES_BETWEEN:
                    figures.windows += len(capture(self.pipeline).landed)
                    self.history.statements.append("-- captured")
            end_prepared(connection, self.chance, self.history)
        if self.races:
            self._race(figures)
        self.history.statements.append("-- synced")
        errors = self._synced(figures)
        compared = compare(self.spark, self.pipeline, self.names)
        keyed = tuple(name for name in self.further if not any(self._is_keyless(name, error) for error in errors))
        verified = verify(self.pipeline, lambda: self.spark, keyed).tables if keyed else ()
        differences = [f"{each}" for each in compared if not each.equal]
        problems = [str(each.problem) for each in verified if each.problem is not None]
        return [*_unforeseen(errors), *problems, *differences]

    def _race(self, figures: Figures) -> None:
        with self._transactions_go_on():
            for _ in range(_SYNCS_OF_A_RACE):
                report = sync(self.pipeline, lambda: self.spark)
                figures.windows += len(report.windows)
                self.history.statements += [f"-- racing: {error}" for error in report.errors]

    @contextmanager
    def _transactions_go_on(self) -> Iterator[None]:
        over, chance = Event(), random.Random(self.chance.random())  # noqa: S311

        def transactions() -> None:
            with _connection(self.database) as connection:
                for _ in range(_TRANSACTIONS_OF_A_RACE):  # without end, tables that double would be all that is read
                    if over.wait(chance.uniform(0, _PAUSE)):
                        break
                    transact(connection, chance, [str(name) for name in self.names], self.history)
                    if chance.random() < _ENDED_BETWEEN:
                        end_prepared(connection, chance, self.history)
                end_prepared(connection, chance, self.history)

        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(transactions)
            try:
                yield
            finally:
                over.set()
            running.result()

    def _synced(self, figures: Figures) -> tuple[CdcError, ...]:
        """What the sync complains of, less tables that wait for their next snapshot: those are read again by hand."""
        report = sync(self.pipeline, lambda: self.spark)
        figures.windows += len(report.windows)
        figures.snapshots += len(report.snapshots)
        waiting = [table.name for table in report.tables if isinstance(table.error, NeedsSnapshotError)]
        errors = tuple(error for error in report.errors if not isinstance(error, NeedsSnapshotError))
        if waiting:
            snapshots = snapshot(Run(self.pipeline, lambda: self.spark), tuple(dict.fromkeys(waiting)))
            figures.snapshots += len(snapshots)
            figures.by_hand += len(snapshots)
            errors += sync(self.pipeline, lambda: self.spark).errors
        return errors

    def _is_keyless(self, name: QualifiedName, error: CdcError) -> bool:
        """Whether ``error`` says so, by the name of the lake's table or of the one that it shows, which begins it."""
        return _HAS_NO_KEY in str(error) and f"{self.pipeline.table(name).shows}" in str(error)


def _unforeseen(errors: Iterable[CdcError]) -> list[str]:
    """A table without a key cannot be in every mode."""
    return [str(error) for error in errors if _HAS_NO_KEY not in str(error)]


def run_campaign(
    spark: SparkSession,
    servers: Sequence[PostgresServer],
    folder: Path,
    rounds: int,
    seed: int,
    first_world: int = 0,
    racing: float = 0,
) -> Figures:
    """So many rounds, in worlds of a few rounds each; a world with a difference ends there, and its history is kept.
    ``racing``: the share of worlds in which transactions go on during syncs."""
    started, figures = time.monotonic(), Figures(seed)
    number = first_world
    while figures.rounds < rounds:
        chance = random.Random(f"{seed}-{number}")  # noqa: S311
        server = chance.choice(servers)
        with fresh_database(server) as database:
            options = random_options(chance, server, racing)
            _live(_made(spark, database, folder / str(number), chance, options), figures, number)
        figures.worlds += 1
        number += 1
        sys.stderr.write(f"\r{figures.rounds} of {rounds} rounds, {len(figures.differences)} differences")
    sys.stderr.write("\n")
    figures.seconds = time.monotonic() - started
    return figures


def _made(spark: SparkSession, database: Database, folder: Path, chance: random.Random, options: Options) -> _World:
    names = [f"t{number}" for number in range(chance.randint(1, 3))]
    statements = [*TYPES, *(statement for name in names for statement in created(chance, name))]
    database.execute(*statements)
    made = pipeline_of(database, folder / "lake", dsn=options.dsn(database))
    limits = WindowLimits(max_bytes=chance.choice((1 << 10, 16 << 10, 1 << 28)), max_per_run=10_000)
    source = replace(made.source, **options.of_source)
    qualified = tuple(QualifiedName("public", name) for name in names)
    modes: tuple[Mode, ...] = ("mirror",) if options.further is None else ("mirror", options.further)
    tables = tuple(table for name in qualified for table in in_modes(name, *modes))
    chunks = SnapshotOptions(chunk_bytes=options.chunk)
    pipeline = replace(made, source=source, windows=limits, merge_engine=options.engine, tables=tables, snapshot=chunks)
    history = History([f"-- server {database.server.version}, {options}, {limits}", *statements])
    assert _unforeseen(sync(pipeline, lambda: spark).errors) == []
    further = tuple(table.name for table in tables if table.shows is not None)
    return _World(spark, database, pipeline, qualified, further, chance, history, options.races)


def _live(world: _World, figures: Figures, number: int) -> None:
    for _ in range(ROUNDS_OF_A_WORLD):
        differences = world.round(figures)
        figures.rounds += 1
        if differences:
            figures.differ(*(f"world {number}: {difference}" for difference in differences))
            kept = Path(world.pipeline.lake.path).with_name("history.sql")
            kept.write_text("\n".join(world.history.statements))
            figures.differ(f"world {number}: what was executed is in {kept}")
            break
    figures.statements += len(world.history.statements)
    figures.ddl += world.history.ddl
    figures.refused += world.history.refused


def _connection(database: Database) -> psycopg.Connection[tuple[object, ...]]:
    """A prepared transaction keeps its locks: who needs them is refused, and does not wait."""
    connection = database.connect()
    connection.execute(sql.SQL("SET lock_timeout = 200"))
    return connection
