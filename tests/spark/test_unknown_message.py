"""A message of a type from the future: kept raw, its table stops before it, other tables and the slot go on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.capture import capture as capture_module
from spark_jobs.capture.capture import capture
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.slot import read_window
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.log_rows import log_rows
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

Put = Callable[[list[bytes]], list[bytes]]


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE b (id int PRIMARY KEY, v text)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.a", "public.b")
    assert pipeline.tables is not None
    made = Followed(spark, database, pipeline, tuple(table.name for table in pipeline.tables))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute("INSERT INTO a VALUES (1, 'known')", "INSERT INTO b VALUES (1, 'known')")
    capture(pipeline)
    return made


def captured(followed: Followed, monkeypatch: pytest.MonkeyPatch, put: Put) -> None:
    """Changes of both tables, landed in one window as a server of the future would have sent them."""
    followed.database.execute(
        "INSERT INTO b VALUES (2, 'b')", "INSERT INTO a VALUES (2, 'a')", "DELETE FROM b WHERE id = 1"
    )

    @contextmanager
    def from_the_future(*arguments: Any, **named: Any) -> Iterator[pa.RecordBatchReader]:
        with read_window(*arguments, **named) as reader:
            wires = put([wire for batch in reader for wire in batch.column(0).to_pylist()])
            batch = pa.record_batch([pa.array(wires, pa.binary())], names=["data"])
            yield pa.RecordBatchReader.from_batches(batch.schema, [batch])

    with monkeypatch.context() as patch:
        patch.setattr(capture_module, "read_window", from_the_future)
        copied = replace(followed.pipeline.windows, peek_bytes=0)  # read by ``read_window``
        assert capture(replace(followed.pipeline, windows=copied)).caught_up


def relid_of(followed: Followed, name: str) -> int:
    [(relid,)] = followed.database.execute(f"SELECT '{name}'::regclass::oid::int")
    return int(str(relid))


def after_the_change_of(followed: Followed, name: str, message: bytes) -> Put:
    change = b"I" + struct.pack("!I", relid_of(followed, name))

    def put(wires: list[bytes]) -> list[bytes]:
        at = next(place for place, wire in enumerate(wires) if wire.startswith(change))
        return [*wires[: at + 1], message, *wires[at + 1 :]]

    return put


@pytest.mark.parametrize("names_its_relation", [True, False])
def test_its_table_stops_and_the_others_go_on(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, names_its_relation: bool
) -> None:
    """By the OID where a change has its relation's, or else by what its transaction changes."""
    relid = relid_of(followed, "a") if names_its_relation else 0xFFFFFFFF
    wire = b"X" + struct.pack("!I", relid) + b"of the future"
    captured(followed, monkeypatch, after_the_change_of(followed, "a", wire))
    marker = followed.markers[-1]
    [unknown] = marker.unknown
    assert (unknown.kind, unknown.ordinal, unknown.relids) == ("X", 1, (relid_of(followed, "a"),))
    [row] = [row for row in log_rows(followed.pipeline) if row["kind"] == "X"]
    assert (row["data"], row["commit_lsn"], row["relid"]) == (wire, unknown.commit_lsn, None)

    for _ in range(2):  # it stays so
        followed.database.execute("INSERT INTO a SELECT max(id) + 1, 'later' FROM a", "UPDATE b SET v = v || 'x'")
        report = sync(followed.pipeline, lambda: followed.spark)
        outcomes = {table.name.relname: table.outcome for table in report.tables}
        assert outcomes == {"a": "stopped", "b": "applied"}
        [error] = report.errors
        assert isinstance(error, DecodeError)
        assert "\n" not in str(error)
        for told in (
            f"slot {followed.pipeline.source.slot}",
            f"window {marker.ordinal} ",
            "ordinal 1",
            "type 'X'",
            "public.a",
        ):
            assert told in str(error)
        a, b = followed.names
        assert followed.lake_rows(a)[0] == [(1, "known")], "brought up to the window before"
        rows, columns = followed.lake_rows(b)
        assert rows == followed.source_rows(b, columns)
        [(position,)] = followed.database.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
        assert Lsn.parse(str(position)) >= report.windows[-1].window.hi > marker.window.hi, "the slot goes on"

    [taken] = snapshot(Run(followed.pipeline, lambda: followed.spark), [followed.names[0]])
    assert taken.error is None
    followed.database.execute("INSERT INTO a VALUES (99, 'after')")
    assert sync(followed.pipeline, lambda: followed.spark).errors == ()
    followed.assert_equal()


def test_between_transactions_it_may_be_about_any_table(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    captured(followed, monkeypatch, lambda wires: [b"X", *wires])
    assert [message.relids for message in followed.markers[-1].unknown] == [()]
    report = sync(followed.pipeline, lambda: followed.spark)
    assert {table.name.relname: table.outcome for table in report.tables} == {"a": "stopped", "b": "stopped"}
    assert len(report.errors) == 2
    for name in followed.names:
        assert followed.lake_rows(name)[0] == [(1, "known")]


def test_a_table_that_nothing_else_touches_is_looked_at(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the announcement and the unknown message are of table b."""
    relid = relid_of(followed, "b")

    def put(wires: list[bytes]) -> list[bytes]:
        change = b"I" + struct.pack("!I", relid)
        unknown = [b"X" + wire[1:] if wire.startswith(change) else wire for wire in wires]
        return [wire for wire in unknown if not wire.startswith(b"D")]

    captured(followed, monkeypatch, put)
    report = sync(followed.pipeline, lambda: followed.spark)
    assert {table.name.relname: table.outcome for table in report.tables} == {"a": "applied", "b": "stopped"}
