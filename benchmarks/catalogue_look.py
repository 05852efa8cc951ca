"""What it costs to look at the catalogue with each window: an idle pipeline with few tables, and with a thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from benchmarks.measurement import Measurement, median_of
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.fingerprints import fingerprint_words
from spark_jobs.postgres.slot import drop_slot
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.followed_tables import watched_tables

_COUNTS = (10, 1000)
_REPEATS = 5
_TABLES = """
DO $$ BEGIN FOR i IN 1..{count} LOOP EXECUTE format(
  'CREATE TABLE idle_{count}_%s (id int PRIMARY KEY, a text, b int, c numeric(10,2), d timestamp, e jsonb, f int)', i);
END LOOP; END $$
"""


def measure_catalogue_looks(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline]
) -> Iterator[Measurement]:
    """Seconds of a capture whose one window holds nothing of the tables, and of the look that is part of it."""
    for count in _COUNTS:
        names = tuple(QualifiedName("public", f"idle_{count}_{number}") for number in range(1, count + 1))
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(_TABLES.format(count=count))
        pipeline = pipeline_of(f"idle_{count}", names)
        checkpoint = prepare(pipeline).ledger.last

        def captured(pipeline: Pipeline = pipeline) -> None:
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                connection.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
            (marker,) = capture(pipeline).landed
            assert marker.catalogue is not None
            assert marker.catalogue.window == 0, "nothing has changed"

        yield Measurement(f"capture of an idle window, {count:,} tables", median_of(_REPEATS, captured))
        with connected(pipeline.source.dsn) as connection:
            look = median_of(
                _REPEATS, partial(fingerprint_words, connection, watched_tables(pipeline, names, checkpoint))
            )
            yield Measurement(f"of that the look at the catalogue, {count:,} tables", look)
            drop_slot(connection, pipeline.source.slot)
        assert ChangeLog(pipeline.lake.change_log).checkpoint() is not None
