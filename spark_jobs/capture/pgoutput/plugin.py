"""The output plugin pgoutput: binary messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.capture.pgoutput.assembly import Assembly
from spark_jobs.capture.pgoutput.options import options_of_pgoutput
from spark_jobs.capture.pgoutput.repeated_announcements import RepeatedAnnouncements
from spark_jobs.capture.pgoutput.window_cuts import WindowCuts
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.plugin import CallRead, Plugin
from spark_jobs.capture.transaction_spool import SPOOL_SCHEMA
from spark_jobs.logicalrep.lsn import Window


class _Call:
    """What the windows of one call share: streamed and prepared transactions that end in a later one, and
    announcements."""

    def __init__(self, read: CallRead) -> None:
        self._end = read.end
        self._cuts = WindowCuts()
        self._assembly = Assembly(read.spool, read.masked)

    def window(self, ordinal: int, window: Window) -> _Reader:
        return _Reader(self, ordinal, window)

    def messages(self, ordinal: int, window: Window, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of one window, in protocol 1's form; plain transactions pass untouched."""
        # nothing may come after the last window: there it is an error, not cut off
        is_last = window.hi == self._end
        cut = self._cuts.rest(batches) if is_last else self._cuts.before(window.hi, batches)
        return self._assembly.batches(ordinal, window, cut)


class _Reader(WindowRows):
    def __init__(self, call: _Call, ordinal: int, window: Window) -> None:
        super().__init__(ordinal, window)
        self._call = call

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        messages = self._call.messages(self.ordinal, self.window, batches)
        return super().rows(RepeatedAnnouncements().left_out(messages))


PGOUTPUT = Plugin("binary", options_of_pgoutput, SPOOL_SCHEMA, _Call, reads_several=True)
