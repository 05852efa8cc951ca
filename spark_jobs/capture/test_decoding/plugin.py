"""The output plugin test_decoding: lines of text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from spark_jobs.capture.plugin import CallRead, Plugin
from spark_jobs.capture.test_decoding.options import options_of_test_decoding
from spark_jobs.capture.test_decoding.tables_by_name import line_tables
from spark_jobs.capture.test_decoding.window_rows import LINE_SPOOL_SCHEMA, LineWindowRows
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.tables.followed_tables import configured_relations


@dataclass(frozen=True)
class _Call:
    read: CallRead

    def window(self, ordinal: int, window: Window) -> LineWindowRows:
        at_source = self.read.at_source
        tables = partial(line_tables, at_source.connection, configured_relations(at_source.pipeline) or ())
        with_messages = bool(at_source.source.messages)
        return LineWindowRows(ordinal, window, tables, self.read.spool, with_messages=with_messages)


# lines say where a commit record ends, so one that begins before a window's end and ends behind it looks like the next
# window's
TEST_DECODING = Plugin("text", options_of_test_decoding, LINE_SPOOL_SCHEMA, _Call, reads_several=False)
