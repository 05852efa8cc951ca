"""``plugin: test_decoding`` against a live server: the log it gives says the same as pgoutput's of the same WAL."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.capture.capture import capture, capture_windows
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError, PreconditionError, SlotError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import Change, LogicalMessage, Truncate
from spark_jobs.logicalrep.pgoutput.read_message import read_change, read_message
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.logicalrep.test_decoding.changes import read_row
from spark_jobs.logicalrep.test_decoding.lines import MessageLine, TruncateLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.connection import conninfo
from spark_jobs.postgres.slot import read_window
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.log_rows import log_rows
from tests.text_workload import FOLLOWED, SCHEMA, workload

pytestmark = pytest.mark.postgres

PLUGIN = "test_decoding"


def landed(pipeline: Pipeline) -> list[dict[str, Any]]:
    return sorted(log_rows(pipeline), key=lambda row: (row["commit_lsn"], row["ordinal"], row["relid"] or 0))


def placed(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Commit order and ordinals; LSNs themselves lie at the commit record's other end."""
    kept = [row for row in rows if row["kind"] in "IUDTM"]
    order = {lsn: number for number, lsn in enumerate(sorted({row["commit_lsn"] for row in kept}))}
    return [
        (
            order[row["commit_lsn"]],
            row["ordinal"],
            row["kind"],
            row["relid"],
            row["version"],
            row["xid"],
            row["commit_time"],
        )
        for row in kept
    ]


def changes(
    rows: list[dict[str, Any]],
) -> list[Change | LogicalMessage | Truncate | TruncateLine | MessageLine | bytes]:
    """What the rows say, read by the object decoders; of TRUNCATE and messages what both plugins tell."""
    relations = {row["version"]: read_message(row["data"]) for row in rows if row["kind"] == "R"}
    found: list[Any] = []
    for row in rows:
        data, relation = row["data"], relations.get(row["version"])
        if row["kind"] in "IUD":
            assert isinstance(relation, Relation)
            found.append(read_row(data, relation) if data[:1] == b"t" else read_change(data, relation))
        elif row["kind"] in "TM":
            said = read_line(data) if data[:1] in b"tm" else read_message(data)
            if isinstance(said, (TruncateLine, Truncate)):
                restarts = said.restart_seqs if isinstance(said, TruncateLine) else said.restart_identity
                found.append((row["relid"], said.cascade, restarts))
            elif isinstance(said, (MessageLine, LogicalMessage)):
                found.append((said.transactional, said.prefix, said.content))
    return found


@pytest.fixture
def both(database_15: Database, tmp_path: Path) -> tuple[Pipeline, Pipeline]:
    """Two slots at one LSN, one per plugin."""
    database_15.execute(*SCHEMA)
    pgoutput = pipeline_of(database_15, tmp_path / "pgoutput", *FOLLOWED, messages=True)
    text = pipeline_of(
        database_15, tmp_path / "text", *FOLLOWED, messages=True, plugin=PLUGIN, slot=f"{database_15.name}_text"
    )
    prepare_slot(pgoutput)
    prepare_slot(text)
    return pgoutput, text


def test_the_log_equals_pgoutputs(both: tuple[Pipeline, Pipeline], database_15: Database) -> None:
    pgoutput, text = both
    workload(database_15)
    hi = capture(pgoutput).upto
    [marker] = capture(text, upto=hi).landed
    wanted, got = landed(pgoutput), landed(text)
    assert placed(got) == placed(wanted)
    assert changes(got) == changes(wanted)
    relations = [{row["data"] for row in rows if row["kind"] == "R"} for rows in (got, wanted)]
    assert relations[0] <= relations[1], "pgoutput announces partitions too"
    theirs = ChangeLog(pgoutput.lake.change_log).markers()[-1]
    assert marker.transactions == theirs.transactions
    assert marker.logical_messages == theirs.logical_messages
    assert [(r.relid, r.relname, r.changes) for r in marker.relations] == [
        (r.relid, r.relname, r.changes) for r in theirs.relations
    ]
    assert not any(row["kind"] == "F" and row["relid"] not in {r.relid for r in marker.relations} for row in got)


def test_random_cuts_give_the_rows_of_one_window(both: tuple[Pipeline, Pipeline], database_15: Database) -> None:
    pgoutput, text = both
    workload(database_15)
    hi = capture(pgoutput).upto
    lo = ChangeLog(text.lake.change_log).markers()[0].window.hi
    rng = random.Random(7)  # noqa: S311
    bounds = [lo, *sorted(Lsn(rng.randrange(lo + 1, hi)) for _ in range(25)), hi]
    capture_windows(text, [Window(a, b) for a, b in pairwise(bounds) if a < b])
    assert placed(landed(text)) == placed(landed(pgoutput))
    assert changes(landed(text)) == changes(landed(pgoutput))


def test_a_transaction_of_many_batches(both: tuple[Pipeline, Pipeline], database_15: Database) -> None:
    pgoutput, text = both
    rows = "SELECT g, repeat('x', 200) FROM generate_series(1, 60000) g"
    database_15.execute(f"BEGIN; INSERT INTO plain {rows}; DELETE FROM plain; COMMIT")
    database_15.execute("INSERT INTO plain VALUES (1, 'last')")
    hi = capture(pgoutput).upto
    [marker] = capture(text, upto=hi).landed
    assert marker.transactions == 2
    assert placed(landed(text)) == placed(landed(pgoutput))


def test_prepared_transactions_take_effect_at_commit_prepared(
    both: tuple[Pipeline, Pipeline], database_15: Database
) -> None:
    pgoutput, text = both
    gid = database_15.name
    database_15.execute(f"BEGIN; INSERT INTO plain VALUES (1, 'a'); PREPARE TRANSACTION '{gid}'")
    database_15.execute(f"BEGIN; INSERT INTO plain VALUES (2, 'b'); PREPARE TRANSACTION '{gid}_2'")
    capture(text)
    database_15.execute("INSERT INTO plain VALUES (3, 'c')", f"COMMIT PREPARED '{gid}'", f"ROLLBACK PREPARED '{gid}_2'")
    capture(text, upto=capture(pgoutput).upto)
    assert changes(landed(text)) == changes(landed(pgoutput))
    assert len(changes(landed(text))) == 2


def test_origin_none_leaves_out_what_was_replayed(database_15: Database, tmp_path: Path) -> None:
    database_15.execute("CREATE TABLE plain (id bigint PRIMARY KEY)")
    pipeline = pipeline_of(database_15, tmp_path / "lake", "plain", plugin=PLUGIN, origin="none")
    prepare_slot(pipeline)
    with database_15.connect() as session:
        session.execute(f"SELECT pg_replication_origin_create('{database_15.name}')")
        session.execute(f"SELECT pg_replication_origin_session_setup('{database_15.name}')")
        session.execute("INSERT INTO plain VALUES (1)")
        session.execute("SELECT pg_replication_origin_session_reset()")
        session.execute("INSERT INTO plain VALUES (2)")
        session.execute(f"SELECT pg_replication_origin_drop('{database_15.name}')")
    [marker] = capture(pipeline).landed
    assert marker.changes == 1
    assert database_15.execute("SELECT 1 FROM pg_publication") == []


def test_without_messages_none_are_kept(database_15: Database, tmp_path: Path) -> None:
    """Before PostgreSQL 17 the plugin prints a message that comes first in front of its transaction's BEGIN."""
    database_15.execute("CREATE TABLE plain (id bigint PRIMARY KEY)")
    pipeline = pipeline_of(database_15, tmp_path / "lake", "plain", plugin=PLUGIN)
    prepare_slot(pipeline)
    database_15.execute(
        "BEGIN; SELECT pg_logical_emit_message(true, 'a', 'b'); INSERT INTO plain VALUES (1); COMMIT",
        "SELECT pg_logical_emit_message(true, 'a', 'alone')",
    )
    [marker] = capture(pipeline).landed
    assert (marker.changes, marker.logical_messages, marker.transactions) == (1, 0, 1)
    [row] = [row for row in landed(pipeline) if row["kind"] == "I"]
    assert row["ordinal"] == 0


def test_tables_that_are_gone_keep_their_lines(both: tuple[Pipeline, Pipeline], database_15: Database) -> None:
    """A dropped table and a dropped partition: what they stop is named in the marker; the rest is landed."""
    _, text = both
    database_15.execute(
        "INSERT INTO child VALUES (1)",
        "INSERT INTO parted VALUES (1, '2024-02-05', 'x')",
        "INSERT INTO computed VALUES (1)",
        "DROP TABLE child",
        'DROP TABLE "Parted 2"',
    )
    [marker] = capture(text).landed
    rows = [row for row in landed(text) if row["kind"] in "It"]
    assert [row["kind"] for row in rows] == ["I", "t", "I"]
    [parted] = database_15.execute("SELECT 'parted'::regclass::oid::int8")
    assert marker.catalogue is not None
    [changed] = marker.catalogue.changed
    assert ((changed.relid,), changed.reasons) == (parted, ('partition public."Parted 2" was detached or dropped',))
    assert {(r.relname, r.relid > 0) for r in marker.relations} == {
        ("child", False),
        ("computed", True),
    }


def test_what_does_not_fit_the_plugin_is_refused(database_15: Database, tmp_path: Path) -> None:
    database_15.execute("CREATE TABLE plain (id bigint PRIMARY KEY)")
    for wrong, message in (
        ({"streaming": "on"}, "streaming: on is not for plugin: test_decoding"),
        ({"binary": True}, "binary: true is not for plugin: test_decoding"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            prepare_slot(pipeline_of(database_15, tmp_path / "lake", "plain", plugin=PLUGIN, **wrong))
    with pytest.raises(PreconditionError, match=r"no table public\.missing"):
        prepare_slot(pipeline_of(database_15, tmp_path / "lake", "missing", plugin=PLUGIN))
    assert database_15.execute("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
    prepare_slot(pipeline_of(database_15, tmp_path / "pgoutput", "plain"))
    with pytest.raises(SlotError, match="uses the output plugin pgoutput, the configuration says test_decoding"):
        prepare_slot(pipeline_of(database_15, tmp_path / "other", "plain", plugin=PLUGIN))


def test_an_output_mode_that_does_not_fit_the_function(database_15: Database, tmp_path: Path) -> None:
    database_15.execute("CREATE TABLE plain (id bigint PRIMARY KEY)")
    pipeline = pipeline_of(database_15, tmp_path / "lake", "plain", plugin=PLUGIN)
    start = prepare_slot(pipeline).window.hi
    database_15.execute("INSERT INTO plain VALUES (1)")
    [(flushed,)] = database_15.execute("SELECT pg_current_wal_flush_lsn()::text")
    window = Window(start, Lsn.parse(str(flushed)))
    with bulk_connection(conninfo(pipeline.source.dsn)) as bulk:
        for through in ("copy", "peek"):
            with (
                pytest.raises(
                    SlotError, match="writes binary output, and pg_logical_slot_get_changes reads text"
                ) as refused,
                read_window(
                    bulk,
                    pipeline.source.slot,
                    window,
                    (("force-binary", "1"),),
                    through=through,
                    output="text",
                ) as reader,
            ):
                reader.read_all()
            assert "\n" not in str(refused.value)
