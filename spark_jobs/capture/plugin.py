"""An output plugin as capturing sees it: how it is started, what it prints, and how that becomes rows of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.window_marker import RelationCounts, UnknownMessage
from spark_jobs.configuration import Pipeline, Source
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.slot import Options, Output


class WindowReader(Protocol):
    """Turns what the plugin prints of one window into rows; its counts are complete when ``rows`` is exhausted."""

    @property
    def transactions(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def logical_messages(self) -> int: ...
    @property
    def relations(self) -> list[RelationSeen]: ...
    @property
    def unknown(self) -> tuple[UnknownMessage, ...]: ...

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The plugin's output in, batches of CHANGE_LOG_SCHEMA out. Raises DecodeError naming window and LSN."""
        ...

    def relation_counts(self) -> tuple[RelationCounts, ...]: ...


@dataclass(frozen=True)
class WindowRead:
    """The window to read as number ``ordinal``, and what it may be read with. ``masked``: the tables whose values must
    not be kept, if there are any."""

    ordinal: int
    window: Window
    pipeline: Pipeline
    control: Connection
    spool: TransactionSpool
    masked: MaskedTables | None = None


@dataclass(frozen=True)
class Plugin:
    """``options`` for a source and a server's major version; ``spool_schema`` is that of transactions that wait for
    their commit; ``reader`` makes a new one for each window."""

    output: Output
    options: Callable[[Source, int], Options]
    spool_schema: pa.Schema
    reader: Callable[[WindowRead], WindowReader]
