"""An output plugin as capture sees it: its options, its output, and how that becomes rows of the change log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.window_marker import RelationCounts, UnknownMessage
from spark_jobs.configuration import Source
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.slot import Options, Output
from spark_jobs.tables.at_source import AtSource


class WindowReader(Protocol):
    """Turns the plugin's output for one window into rows. Its counts are complete once ``rows`` is exhausted."""

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

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the plugin's output into batches of CHANGE_LOG_SCHEMA. Raises DecodeError that names window and LSN.

        ``batches``: an iterator over those of the call, which is left where the window ends."""
        ...

    def relation_counts(self) -> tuple[RelationCounts, ...]: ...


class CallReader(Protocol):
    """Turns the plugin's output of one call, for one or several windows, into rows."""

    def window(self, ordinal: int, window: Window) -> WindowReader:
        """The reader of the next window: to be asked for when the rows of the one before are read."""
        ...


@dataclass(frozen=True)
class CallRead:
    """What reading needs of one call up to ``end``. ``masked``: the tables with masked columns, if any."""

    end: Lsn
    at_source: AtSource
    spool: TransactionSpool
    masked: MaskedTables | None = None


@dataclass(frozen=True)
class Plugin:
    """``options`` takes a source and the server's major version. ``spool_schema`` is the schema in which transactions
    are spooled until they commit. ``reader`` makes the reader of one call. ``reads_several``: the output of a call can
    be cut where a window ends."""

    output: Output
    options: Callable[[Source, int], Options]
    spool_schema: pa.Schema
    reader: Callable[[CallRead], CallReader]
    reads_several: bool
