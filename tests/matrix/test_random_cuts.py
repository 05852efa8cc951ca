"""The workload's WAL cut at random LSNs: in every mode the windows, one after the other, are the uncut reading.

And every mode gives what protocol 1 gives. 12 cuts in modes of server 18 that have every two options together; ``make
nightly`` does all modes, and the other servers too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import pyarrow as pa
import pytest
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.pgoutput.assembly import Assembly
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.plugins import plugin_options
from spark_jobs.capture.test_decoding.tables_by_name import line_tables
from spark_jobs.capture.test_decoding.window_rows import LINE_SPOOL_SCHEMA, LineWindowRows
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.configuration import Source
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.connection import connected, conninfo
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.publication import ensure_publications
from spark_jobs.postgres.slot import Options, create_slot, read_window
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database, fresh_database
from tests.matrix.cells import Cell, in_cells
from tests.matrix.workload import SCHEMA, TABLES, workload

pytestmark = pytest.mark.postgres

NAMES = tuple(map(QualifiedName.parse, TABLES))
# each value of an option with each of another one
CELLS_BY_DAY = (
    Cell(),
    Cell(two_phase=True, binary=True),
    Cell(streaming="on", binary=True),
    Cell(streaming="on", two_phase=True),
    Cell(streaming="parallel", binary=True),
    Cell(streaming="parallel", two_phase=True),
    Cell("test_decoding", two_phase=True),
)
BY_DAY = [(18, cell) for cell in CELLS_BY_DAY]
CUTS = 12
SEED = 4


@dataclass(frozen=True)
class Row:
    """What of a change must not depend on where the window was cut."""

    commit_lsn: int
    ordinal: int
    kind: str
    relid: int | None
    xid: int | None
    origin: str | None
    data: bytes


@dataclass(frozen=True)
class Worked:
    """A database after the workload; ``whole`` is the WAL of it, which slots of both plugins still hold."""

    database: Database
    version: int
    whole: Window

    def slot(self, plugin: str) -> str:
        return f"{self.database.name}_{plugin}"

    def rows(self, cell: Cell, window: Window, messages: bool) -> list[Row]:
        """One window's changes in total order, read with this cell's options."""
        slot = self.slot(cell.plugin)
        source = cell.of(Source(SecretStr(self.database.dsn), slot, self.database.name, messages=messages))
        return self._rows(source, window, plugin_options(source, self.version * 10_000))

    def kinds(self, cell: Cell) -> set[str]:
        """The message types that pgoutput sends for the whole."""
        source = cell.of(Source(SecretStr(self.database.dsn), self.slot(cell.plugin), self.database.name))
        options = plugin_options(source, self.version * 10_000)
        with (
            bulk_connection(conninfo(source.dsn)) as bulk,
            read_window(bulk, source.slot, self.whole, options) as batches,
        ):
            return {chr(data[0]) for batch in batches for data in batch.column("data").to_pylist()}

    def _rows(self, source: Source, window: Window, options: Options) -> list[Row]:
        lines = source.plugin == "test_decoding"
        with (
            connected(source.dsn) as control,
            bulk_connection(conninfo(source.dsn)) as bulk,
            TransactionSpool(**({"schema": LINE_SPOOL_SCHEMA} if lines else {})) as spool,
            read_window(bulk, source.slot, window, options, output="text" if lines else "binary") as batches,
        ):
            if lines:
                found = LineWindowRows(1, window, lambda: line_tables(control, NAMES), spool, True).rows(batches)
            else:
                found = WindowRows(1, window).rows(Assembly(spool).batches(1, window, batches))
            return _changes(found)


def _changes(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    wanted = list(Row.__dataclass_fields__)
    rows = [Row(**row) for batch in batches for row in batch.select(wanted).to_pylist() if row["kind"] in "IUDTM"]
    return sorted(rows, key=lambda row: (row.commit_lsn, row.ordinal, row.relid or 0))


@pytest.fixture(scope="module")
def worked_on(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Worked]]:
    """The workload of a server version, done once, whatever order the tests come in."""
    with ExitStack() as stack:
        yield cache(lambda version: stack.enter_context(_worked(request.getfixturevalue(f"postgres_{version}"))))


@pytest.fixture
def worked(worked_on: Callable[[int], Worked], version: int) -> Worked:
    return worked_on(version)


@contextmanager
def _worked(server: PostgresServer) -> Iterator[Worked]:
    with fresh_database(server) as database:
        name = database.name
        database.execute(*SCHEMA, f"ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'")
        with connected(SecretStr(database.dsn)) as control:
            ensure_publications(control, [name], NAMES)
            for plugin in ("pgoutput", "test_decoding"):
                lo = create_slot(control, f"{name}_{plugin}", plugin=plugin).lsn
            with workload(database, SEED) as work:
                work.run(220)
                assert {
                    "prepare",
                    "commit prepared",
                    "rollback to",
                    "message",
                    "loose message",
                    "truncate",
                    "origin",
                } <= set(work.done)
                yield Worked(database, server.version, Window(lo, flushed_lsn(control)))


@cache
def uncut(worked: Worked, cell: Cell, messages: bool) -> list[Row]:
    return worked.rows(cell, worked.whole, messages)


def with_messages(cell: Cell) -> bool:
    """A streamed message may be of a subtransaction that was rolled back: capture then reads without streaming."""
    return cell.streaming == "off"


def in_every_mode(kept: Callable[[Cell], bool] = lambda _: True) -> pytest.MarkDecorator:
    return in_cells(lambda *each: each in BY_DAY, kept)


@in_every_mode()
def test_cut_windows_are_the_whole(worked: Worked, cell: Cell) -> None:
    rng = random.Random(f"{worked.version} {cell.name}")  # noqa: S311
    lo, hi = worked.whole.lo, worked.whole.hi
    bounds = sorted({lo, hi, *(Lsn(rng.randrange(lo + 1, hi)) for _ in range(CUTS))})
    cut = [row for a, b in pairwise(bounds) for row in worked.rows(cell, Window(a, b), with_messages(cell))]
    assert len(cut) > 5_000
    assert cut == uncut(worked, cell, with_messages(cell))


@in_every_mode()
def test_a_window_that_ends_inside_a_commit_record_has_the_transaction(worked: Worked, cell: Cell) -> None:
    rng = random.Random(f"{worked.version} {cell.name} commits")  # noqa: S311
    # pgoutput says where a commit record starts, of at least 24 bytes; test_decoding where it ends
    starts = sorted({row.commit_lsn for row in uncut(worked, Cell(), True) if row.kind != "M"})
    within = [Lsn(start + rng.randrange(1, 24)) for start in rng.sample(starts, CUTS)]
    cut: list[Row] = []
    for a, b in pairwise(sorted({worked.whole.lo, worked.whole.hi, *within})):
        rows = worked.rows(cell, Window(a, b), with_messages(cell))
        assert all(a <= row.commit_lsn < b for row in rows)
        cut += rows
    whole = uncut(worked, cell, with_messages(cell))
    # of a transaction that a window ends in test_decoding has another commit LSN
    same_place = [replace(row, commit_lsn=found.commit_lsn) for row, found in zip(whole, cut, strict=True)]
    assert cut == (same_place if cell.plugin == "test_decoding" else whole)


@in_every_mode()
def test_every_mode_gives_what_protocol_1_gives(worked: Worked, cell: Cell) -> None:
    """Byte for byte; in binary all but the data, and of test_decoding's lines what both plugins tell."""
    messages = with_messages(cell)
    assert uncut(worked, cell, messages) == uncut(worked, cell.same_log_as, messages)
    places = [(row.xid, row.ordinal, row.kind, row.relid) for row in uncut(worked, cell, messages)]
    assert places == [(row.xid, row.ordinal, row.kind, row.relid) for row in uncut(worked, Cell(), messages)]


@in_every_mode(lambda cell: cell.plugin == "pgoutput")
def test_the_workload_shows_what_the_mode_is_about(worked: Worked, cell: Cell) -> None:
    kinds = worked.kinds(cell)
    assert set("BCIUDTRO") <= kinds
    assert (set("SEcA") <= kinds) == (cell.streaming != "off")
    assert (set("bPKr") <= kinds) == cell.two_phase
    assert ("p" in kinds) == (cell.two_phase and cell.streaming != "off")
