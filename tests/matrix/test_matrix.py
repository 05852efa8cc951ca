"""Every server, every way to read it, one workload: the lake equals the source, row by row and value by value.

``make nightly`` does all of it: servers 14 to 19, and Spark in every cell. ``make test``, and so CI, does a part:
servers 15, 18 and 19, where every cell is captured and its change log compared; the logs of binary on 18, of
test_decoding on 15 and of text on 19 are applied. The other cells' logs are equal to one of these, row by row, and a
lake is made of its log alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.capture.plugins import plugin_options
from spark_jobs.configuration import Lake, Pipeline, Source, Table, WindowLimits
from spark_jobs.errors import ConfigurationError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from tests.fixtures.row_compare import compare
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database, fresh_database
from tests.log_rows import log_rows
from tests.matrix.cells import Cell, Plugin, every_cell, in_cells
from tests.matrix.workload import SCHEMA, TABLES, workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DAY = (15, 19)
APPLIED_BY_DAY = ((15, Cell(binary=True)), (19, Cell()))
NAMES = tuple(map(QualifiedName.parse, TABLES))
SEED = 11
_PLUGINS: tuple[Plugin, ...] = ("pgoutput", "test_decoding")
# small, so that prepared transactions are committed in later windows than they were prepared in
_WINDOW_BYTES = 700_000


@dataclass(frozen=True)
class Worked:
    """A database after the workload. ``templates``: by plugin the lake as it was before, which every cell begins with.

    All have one slot's name, so that one set of snapshots serves them all; by plugin a copy of it is kept where it
    stood.
    """

    database: Database
    version: int
    end: Lsn
    templates: dict[Plugin, Pipeline]
    folder: Path

    def pipeline(self, cell: Cell) -> Pipeline:
        """A lake of its own for this cell, and a slot that stands where the workload began."""
        template = self.templates[cell.plugin]
        lake = self.folder / cell.name
        shutil.copytree(template.lake.path, lake)
        slot = template.source.slot
        self.database.execute(
            f"SELECT pg_drop_replication_slot('{slot}')",
            f"SELECT pg_copy_logical_replication_slot('{slot}_{cell.plugin}', '{slot}')",
        )
        return replace(template, source=cell.of(template.source), lake=Lake(str(lake)))


@pytest.fixture(scope="module")
def worked_on(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[int], Worked]]:
    """The workload of a server version, done once, whatever order the tests come in."""
    with ExitStack() as stack:

        def once(version: int) -> Worked:
            server = request.getfixturevalue(f"postgres_{version}")
            return stack.enter_context(_worked(server, spark, tmp_path_factory.mktemp(f"matrix-{version}")))

        yield cache(once)


@pytest.fixture
def worked(worked_on: Callable[[int], Worked], version: int) -> Worked:
    return worked_on(version)


@contextmanager
def _worked(server: PostgresServer, spark: SparkSession, folder: Path) -> Iterator[Worked]:
    with fresh_database(server) as database:
        name = database.name
        database.execute(*SCHEMA, f"ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'")
        with workload(database, SEED) as work:
            work.run(40)
            for gid in work.prepared:  # a slot waits for it
                database.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)).as_string(None))
            work.prepared.clear()
            templates = {plugin: _template(database, plugin, folder) for plugin in _PLUGINS}
            lakes = [Path(templates[plugin].lake.path) for plugin in _PLUGINS]
            assert [each.error for each in snapshot(Run(templates["pgoutput"], lambda: spark)) if each.error] == []
            shutil.copytree(lakes[0] / "tables", lakes[1] / "tables")
            work.run(220)
            assert work.prepared, "one is open at the end"
            with connected(SecretStr(database.dsn)) as control:
                end = flushed_lsn(control)
            yield Worked(database, server.version, end, templates, folder)


def _template(database: Database, plugin: Plugin, folder: Path) -> Pipeline:
    """Slot and log as they are before the workload; the slot makes room for the next one of its name."""
    slot = database.name
    source = Source(SecretStr(database.dsn), slot, database.name, plugin=plugin, messages=True)
    tables = tuple(map(Table, NAMES))
    limits = WindowLimits(max_bytes=_WINDOW_BYTES, max_per_run=1000)
    pipeline = Pipeline(database.name, source, Lake(str(folder / f"template-{plugin}")), limits, tables)
    database.execute(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'")
    prepare(pipeline)
    database.execute(f"SELECT pg_copy_logical_replication_slot('{slot}', '{slot}_{plugin}')")
    return pipeline


def in_every_cell(*, applied: bool) -> pytest.MarkDecorator:
    """``applied``: by day only those that are applied."""
    return in_cells(lambda *each: each in APPLIED_BY_DAY if applied else each[0] in BY_DAY)


def logged_changes(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """All changes in total order, each with all that applying it depends on."""
    columns = ["commit_lsn", "ordinal", "relid", "kind", "version", "xid", "commit_time", "origin", "data", "window"]
    changes = [tuple(row.values()) for row in log_rows(pipeline, columns) if row["kind"] in "IUDTM"]
    return sorted(changes, key=lambda row: (row[0], row[1], row[2] or 0))


@pytest.fixture(scope="module")
def captured() -> dict[tuple[int, Cell], Pipeline]:
    """The lakes that were captured into so far."""
    return {}


def _captured(worked: Worked, cell: Cell, captured: dict[tuple[int, Cell], Pipeline]) -> Pipeline:
    if (worked.version, cell) not in captured:
        pipeline = worked.pipeline(cell)
        report = capture(pipeline, upto=worked.end)
        assert report.caught_up
        assert len(report.landed) > 3
        captured[worked.version, cell] = pipeline
    return captured[worked.version, cell]


@pytest.mark.spark
@pytest.mark.postgres
@in_every_cell(applied=False)
def test_log_equals_the_plainest_ones(worked: Worked, cell: Cell, captured: dict[tuple[int, Cell], Pipeline]) -> None:
    rows = logged_changes(_captured(worked, cell, captured))
    assert len(rows) > 3_000
    assert {row[3] for row in rows} == set("IUDTM")
    assert rows == logged_changes(_captured(worked, cell.same_log_as, captured))


@pytest.mark.spark
@pytest.mark.postgres
@in_every_cell(applied=True)
def test_lake_equals_source(
    worked: Worked, cell: Cell, captured: dict[tuple[int, Cell], Pipeline], spark: SparkSession
) -> None:
    pipeline = _captured(worked, cell, captured)
    report = apply(Run(pipeline, lambda: spark), None)
    assert [outcome.error for outcome in report.tables if outcome.error] == []
    compared = compare(spark, pipeline, NAMES, by_spark=True)
    assert [each for each in compared if not each.equal] == []
    assert sum(each.lake_rows for each in compared) > 3_000


@pytest.mark.parametrize("cell", list(every_cell()), ids=lambda cell: cell.name)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_server_or_plugin_cannot_do_is_refused_by_name(version: int, cell: Cell) -> None:
    source = cell.of(Source(SecretStr(""), "s", "p"))
    refused = cell.refused(version)
    if refused is None:
        assert plugin_options(source, version * 10_000)
        return
    with pytest.raises(ConfigurationError) as error:
        plugin_options(source, version * 10_000)
    assert refused in str(error.value)
