"""How a random world's slot is read: the plugin and its options, as far as the server has them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import MergeEngine, SnapshotOptions
from spark_jobs.options.table_mode import Mode
from tests.fixtures.servers import Database

# no table fits into one
_SMALL_CHUNK = 8 << 10


@dataclass(frozen=True)
class Options:
    """``work_mem``: of the decoder; a small one makes large transactions streamed or spilled. ``engine``: who writes
    what is small. ``chunk``: how many bytes of a table are read at once. ``further``: the mode that each table is in
    beside ``mirror``, if any. ``races``: transactions go on during syncs."""

    plugin: Literal["pgoutput", "test_decoding"]
    streaming: Literal["off", "on", "parallel"]
    two_phase: bool
    binary: bool
    work_mem: str
    engine: MergeEngine = "spark"
    chunk: int = SnapshotOptions.chunk_bytes
    further: Mode | None = None
    races: bool = False

    @property
    def of_source(self) -> dict[str, Any]:
        """The fields of ``Source``."""
        return {
            "plugin": self.plugin,
            "streaming": self.streaming,
            "two_phase": self.two_phase,
            "binary": self.binary,
        }

    def dsn(self, database: Database) -> str:
        return f"{database.dsn} options='-c logical_decoding_work_mem={self.work_mem}'"


def random_options(chance: random.Random, server: PostgresServer, racing: float) -> Options:
    source = _random_source(chance, server)
    return replace(
        source,
        engine=chance.choice(("spark", "auto")),
        chunk=chance.choice((_SMALL_CHUNK, SnapshotOptions.chunk_bytes)),
        further=chance.choice((None, "soft_delete", "history")),
        # PostgreSQL 18.4 crashes where test_decoding reads tables that are altered at that time
        races=racing > 0 and chance.random() < racing and source.plugin == "pgoutput",
    )


def _random_source(chance: random.Random, server: PostgresServer) -> Options:
    if chance.random() < 0.15:
        return Options("test_decoding", "off", two_phase=False, binary=False, work_mem="64kB")
    streaming: list[Literal["off", "on", "parallel"]] = ["off", "on"]
    if server.version >= 16:
        streaming.append("parallel")
    return Options(
        "pgoutput",
        chance.choice(streaming),
        two_phase=server.version >= 15 and chance.random() < 0.4,
        binary=chance.random() < 0.4,
        work_mem=chance.choice(("64kB", "64MB")),
    )
