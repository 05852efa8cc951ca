"""The output plugin pgoutput: binary messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.capture.pgoutput.assembly import Assembly
from spark_jobs.capture.pgoutput.options import options_of_pgoutput
from spark_jobs.capture.pgoutput.repeated_announcements import RepeatedAnnouncements
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.plugin import Plugin, WindowRead
from spark_jobs.capture.transaction_spool import SPOOL_SCHEMA


class _Reader(WindowRows):
    """First brings streamed and prepared transactions into protocol 1's order; plain ones pass untouched."""

    def __init__(self, read: WindowRead) -> None:
        super().__init__(read.ordinal, read.window)
        self._assembly = Assembly(read.ordinal, read.window, read.spool, read.masked)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return super().rows(RepeatedAnnouncements().left_out(self._assembly.batches(batches)))


PGOUTPUT = Plugin("binary", options_of_pgoutput, SPOOL_SCHEMA, _Reader)
