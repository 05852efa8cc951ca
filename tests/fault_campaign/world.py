"""All that a campaign works on: a server of its own, two small disks, the pipeline, the processes that it strikes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from spark_jobs.configuration import Pipeline
from spark_jobs.postgres.locks import cuts_lock
from spark_jobs.qualified_name import QualifiedName
from tests.apply.several_modes import in_modes
from tests.fault_campaign.clients import Clients
from tests.fault_campaign.statements import SCHEMA, TABLES
from tests.fixtures.advisory_locks import LockKey, lock_keys
from tests.fixtures.disks import Disk, small_disk
from tests.fixtures.falling_server import FallingServer, falling_server
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

# every transaction of a few rows is streamed to a client that asks for it
_SETTINGS = {"logical_decoding_work_mem": "64kB", "checkpoint_timeout": "30s"}
_LAKE_MEGABYTES, _SPOOL_MEGABYTES = 2048, 32


@dataclass(frozen=True)
class World:
    """``cuts``: the lock of those who write the cuts. ``folder`` holds what is none of the pipeline's."""

    falling: FallingServer
    database: Database
    pipeline: Pipeline
    lake_disk: Disk
    spool_disk: Disk
    clients: Clients
    cuts: frozenset[LockKey]
    folder: Path

    @property
    def names(self) -> tuple[QualifiedName, ...]:
        """Of the lake's tables."""
        return tuple(table.name for table in self.pipeline.tables or ())


@contextmanager
def world(folder: Path, jars: Path) -> Iterator[World]:
    """The tables are there; nothing is prepared yet."""
    with ExitStack() as stack:
        falling = stack.enter_context(falling_server(18, _SETTINGS))
        Database(falling.server, "postgres").execute("CREATE DATABASE campaign")
        database = Database(falling.server, "campaign")
        database.execute(*SCHEMA)
        lake_disk = stack.enter_context(small_disk(folder / "lake_disk", _LAKE_MEGABYTES))
        spool_disk = stack.enter_context(small_disk(folder / "spool_disk", _SPOOL_MEGABYTES))
        pipeline = pipeline_of(database, lake_disk.folder / "lake", engine="spark", messages=True)
        tables = (table for name, modes in TABLES.items() for table in in_modes(QualifiedName.parse(name), *modes))
        pipeline = replace(pipeline, tables=tuple(tables))
        cuts = lock_keys(pipeline.source.dsn, [lambda connection: cuts_lock(connection, pipeline.source.slot)])
        # last: its processes are gone before the disks and the server are
        clients = Clients(folder, spool_disk.folder, jars, stack.enter_context(ExitStack()))
        yield World(falling, database, pipeline, lake_disk, spool_disk, clients, cuts, folder)
