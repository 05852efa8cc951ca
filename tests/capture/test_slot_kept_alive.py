"""With a small ``max_slot_wal_keep_size`` and no Spark at all, capture alone keeps the slot alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.prepare import prepare
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import fresh_database, started

pytestmark = pytest.mark.postgres

_ROUNDS, _ROWS = 6, 50
_KEPT = "16MB"  # one segment: each round writes more


def test_capture_alone_keeps_the_slot_alive(tmp_path: Path) -> None:
    """Beside it a slot that nobody captures from is lost. A server of its own: its setting holds for all slots."""
    with started(18) as server, fresh_database(server) as database:
        database.execute("CREATE TABLE event (id int PRIMARY KEY, body text)")
        pipeline = pipeline_of(database, tmp_path / "lake", "public.event")
        prepare(pipeline)
        database.execute(
            "SELECT pg_create_logical_replication_slot('neglected', 'pgoutput')",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{_KEPT}'",
            "SELECT pg_reload_conf()",
        )
        for round_ in range(_ROUNDS):
            first = round_ * _ROWS
            database.execute(
                f"INSERT INTO event SELECT g, repeat('x', 1000) FROM generate_series({first}, {first + _ROWS - 1}) g",
                "SELECT pg_switch_wal()",
            )
            capture(pipeline)
            database.execute("CHECKPOINT")
        rows = database.execute("SELECT slot_name::text, wal_status FROM pg_replication_slots")
        status = {str(name): str(wal_status) for name, wal_status in rows}
        assert status["neglected"] == "lost"
        assert status[pipeline.source.slot] == "reserved"
        markers = ChangeLog(pipeline.lake.change_log).markers()
        landed = sum(count.changes.inserts for marker in markers for count in marker.relations)
        assert landed == _ROUNDS * _ROWS
        database.execute("SELECT pg_drop_replication_slot('neglected')")
