"""The output plugin test_decoding: lines of text."""

from __future__ import annotations

from functools import partial

from spark_jobs.capture.plugin import Plugin, WindowRead
from spark_jobs.capture.test_decoding.options import options_of_test_decoding
from spark_jobs.capture.test_decoding.tables_by_name import line_tables
from spark_jobs.capture.test_decoding.window_rows import LINE_SPOOL_SCHEMA, LineWindowRows
from spark_jobs.tables.followed_tables import configured_relations


def _reader(read: WindowRead) -> LineWindowRows:
    names = configured_relations(read.pipeline) or ()
    tables = partial(line_tables, read.control, names)
    with_messages = bool(read.pipeline.source.messages)
    return LineWindowRows(read.ordinal, read.window, tables, read.spool, with_messages=with_messages)


TEST_DECODING = Plugin("text", options_of_test_decoding, LINE_SPOOL_SCHEMA, _reader)
