"""The callbacks that send nothing of their own: startup, shutdown, filter_prepare, output modes, on live servers.

Their effects are what can be seen: options accepted and refused, a slot that is free again, the same lake either way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.errors import CdcError, ConfigurationError, SlotError
from spark_jobs.logicalrep.messages import BinaryValue, Insert
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database
from tests.spark.followed_pipeline import Followed, synced
from tests.spark.plugin_output import following, lines, messages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = pytest.mark.postgres


def slots(database: Database) -> list[tuple[object, ...]]:
    return database.execute(
        "SELECT slot_name::text, active, active_pid FROM pg_replication_slots"
        f" WHERE database = '{database.name}' OR temporary"
    )


@pytest.mark.spark
def test_every_callback_of_test_decoding(spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path) -> None:
    """Begin, change, truncate, message, commit, and a prepared transaction, as lines of text."""
    with following(
        spark, postgres_15, tmp_path / "lake", "many", "few", plugin="test_decoding", messages=True
    ) as followed:
        followed.database.execute(
            "BEGIN; INSERT INTO few VALUES (1, 'it''s [text]:null'), (2, NULL);"
            " SELECT pg_logical_emit_message(true, 'app, mine', 'in'); UPDATE few SET id = 3 WHERE id = 2; COMMIT",
            "SELECT pg_logical_emit_message(false, 'app', 'out')",
            "BEGIN; INSERT INTO many VALUES (9, 'lost'); TRUNCATE many; INSERT INTO many VALUES (1, 'kept'); COMMIT",
            "DELETE FROM few WHERE id = 0",
            "BEGIN; INSERT INTO few VALUES (4, 'prepared'); PREPARE TRANSACTION 'gid'",
            "BEGIN; INSERT INTO few VALUES (5, 'never'); PREPARE TRANSACTION 'none'",
            "ROLLBACK PREPARED 'none'",
            "COMMIT PREPARED 'gid'",
        )
        text = "\n".join(lines(followed, "include-xids", "0"))
        for word in ("BEGIN", "COMMIT", "INSERT:", "UPDATE:", "DELETE:", "TRUNCATE:", "message: transactional: 1"):
            assert word in text
        synced(followed)
        followed.assert_equal()
        assert messages_of(followed) == ["in", "out"]


@pytest.mark.spark
def test_filter_prepare_makes_no_difference(spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path) -> None:
    """On a two-phase slot of the user's own: test_decoding passes over a PREPARE with ``_nodecode`` in its gid."""
    with fresh_database(postgres_15) as database:
        database.execute(
            "CREATE TABLE few (id int PRIMARY KEY, v text)",
            f"SELECT pg_create_logical_replication_slot('{database.name}', 'test_decoding', false, true)",
            f"SELECT pg_create_logical_replication_slot('{database.name}_seen', 'test_decoding', false, true)",
        )
        pipeline = pipeline_of(database, tmp_path / "lake", "public.few", plugin="test_decoding")
        followed = Followed(spark, database, pipeline, (QualifiedName("public", "few"),))
        synced(followed)
        database.execute(
            "BEGIN; INSERT INTO few VALUES (1, 'decoded'); PREPARE TRANSACTION 'plain'",
            "BEGIN; INSERT INTO few VALUES (2, 'not yet'); PREPARE TRANSACTION 'gid_nodecode'",
            "BEGIN; INSERT INTO few VALUES (3, 'never'); PREPARE TRANSACTION 'off_nodecode'",
        )
        synced(followed)
        followed.assert_equal()
        database.execute(
            "COMMIT PREPARED 'gid_nodecode'", "COMMIT PREPARED 'plain'", "ROLLBACK PREPARED 'off_nodecode'"
        )
        seen = [
            str(row[0])
            for row in database.execute(
                f"SELECT data FROM pg_logical_slot_peek_changes('{database.name}_seen', NULL, NULL)"
            )
        ]
        assert any(line.startswith("PREPARE TRANSACTION 'plain'") for line in seen)
        assert not any(line.startswith("PREPARE TRANSACTION 'gid_nodecode'") for line in seen)
        synced(followed)
        followed.assert_equal()
        assert sorted(row[0] for row in followed.lake_rows(followed.names[0])[0]) == [1, 2]


@pytest.mark.parametrize("through", ["peek", "copy"])
def test_after_a_read_the_slot_is_free_again(postgres_16: PostgresServer, tmp_path: Path, through: str) -> None:
    """Shutdown: nobody holds the slot, no copy is left, and the next reader gets it; after a failed read too."""
    peek_bytes = 0 if through == "copy" else 1 << 20
    with fresh_database(postgres_16) as database:
        database.execute("CREATE TABLE few (id int PRIMARY KEY, v text)")
        pipeline = pipeline_of(database, tmp_path / "lake", "public.few", peek_bytes=peek_bytes, streaming="on")
        prepare_slot(pipeline)
        database.execute("INSERT INTO few VALUES (1, 'a')")
        assert len(capture(pipeline).landed) == 1
        assert slots(database) == [(database.name, False, None)]
        database.execute(f"DROP PUBLICATION {database.name}", "INSERT INTO few VALUES (2, 'b')")
        with pytest.raises(CdcError):
            capture(pipeline)
        assert slots(database) == [(database.name, False, None)]
        database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")


# what startup_cb is asked for, and the words of the refusal; None: accepted
STARTUP: dict[str, tuple[int, dict[str, Any], str | None]] = {
    "14 streams": (14, {"streaming": "on"}, None),
    "14 has no two_phase": (14, {"two_phase": True}, "source.two_phase: true needs PostgreSQL 15"),
    "14 has no parallel": (14, {"streaming": "parallel"}, "source.streaming: parallel needs PostgreSQL 16"),
    "15 has two_phase": (15, {"two_phase": True, "streaming": "on"}, None),
    "15 has no parallel": (15, {"streaming": "parallel"}, "source.streaming: parallel needs PostgreSQL 16"),
    "15 has no origin": (15, {"origin": "none"}, "source.origin: none needs PostgreSQL 16"),
    "16 has all": (16, {"streaming": "parallel", "two_phase": True, "origin": "none", "messages": True}, None),
    "18, binary": (18, {"binary": True, "messages": True}, None),
    "test_decoding streams nothing": (15, {"plugin": "test_decoding", "streaming": "on"}, "streaming"),
    "test_decoding": (15, {"plugin": "test_decoding"}, None),
}


@pytest.mark.parametrize("case", STARTUP)
def test_startup_options_are_accepted_or_refused_by_name(
    case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    version, options, refused = STARTUP[case]
    with fresh_database(request.getfixturevalue(f"postgres_{version}")) as database:
        database.execute("CREATE TABLE few (id int PRIMARY KEY, v text)")
        pipeline = pipeline_of(database, tmp_path / "lake", "public.few", **options)
        if refused is not None:
            with pytest.raises(ConfigurationError) as caught:
                prepare_slot(pipeline)
            assert refused in str(caught.value)
            assert slots(database) == []
            assert not (tmp_path / "lake").exists()
            return
        prepare_slot(pipeline)
        database.execute("INSERT INTO few VALUES (1, 'a')")
        [marker] = capture(pipeline).landed
        assert marker.changes == 1


def test_output_modes(postgres_15: PostgresServer, tmp_path: Path) -> None:
    """pgoutput's output is binary, test_decoding's is text; a slot of the other one is refused before it is read."""
    with fresh_database(postgres_15) as database:
        database.execute(
            "CREATE TABLE few (id int PRIMARY KEY, v text)",
            f"CREATE PUBLICATION {database.name} FOR TABLE few",
            f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
        )
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="produces binary output"):
            database.execute(
                f"SELECT * FROM pg_logical_slot_peek_changes('{database.name}', NULL, NULL, 'proto_version', '1',"
                f" 'publication_names', '{database.name}')"
            )
        wrong = pipeline_of(database, tmp_path / "lake", "public.few", plugin="test_decoding")
        with pytest.raises(SlotError, match="uses the output plugin pgoutput, the configuration says test_decoding"):
            prepare_slot(wrong)
        right = pipeline_of(database, tmp_path / "lake", "public.few")
        prepare_slot(right)
        database.execute("INSERT INTO few VALUES (1, 'a')")
        assert capture(right).landed[0].changes == 1


@pytest.mark.spark
def test_messages_of_test_decoding_are_no_table_where_they_are_off(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """The plugin sends them in any case; what is turned on later begins with the windows that have it on."""
    with following(spark, postgres_15, tmp_path / "lake", "few", plugin="test_decoding") as followed:
        followed.database.execute("SELECT pg_logical_emit_message(true, 'app', 'early')")
        synced(followed)
        assert not Path(followed.pipeline.lake.messages).exists()
        on = pipeline_of(followed.database, tmp_path / "lake", "public.few", plugin="test_decoding", messages=True)
        followed.database.execute("SELECT pg_logical_emit_message(true, 'app', 'late')")
        assert sync(on, lambda: spark).errors == ()
        assert messages_of(followed) == ["late"]


@pytest.mark.spark
def test_binary_values_are_the_same_lake_values(
    spark: SparkSession, postgres_18: PostgresServer, tmp_path: Path
) -> None:
    """Two pipelines over one history, one read as text, one as binary."""
    columns = "i int, b bigint, n numeric(20,4), f float8, t text, d date, ts timestamptz, y bytea, j jsonb, a int[]"
    values = (
        "7, -1, 12.3400, 0.1, 'ä', '2024-02-29', '2024-01-02 03:04:05.678+02', '\\x00ff', '{\"a\": [1]}', '{1,NULL}'"
    )
    with fresh_database(postgres_18) as database:
        database.execute(f"CREATE TABLE few (id int PRIMARY KEY, {columns})")
        followed = []
        for binary in (False, True):
            pipeline = pipeline_of(
                database,
                tmp_path / f"binary {binary}",
                "public.few",
                binary=binary,
                slot=f"{database.name}_{binary}".lower(),
            )
            followed.append(Followed(spark, database, pipeline, (QualifiedName("public", "few"),)))
            synced(followed[-1])
        database.execute(f"INSERT INTO few VALUES (1, {values})", "INSERT INTO few (id) VALUES (2)")
        sent = database.execute(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{database.name}_true', NULL, NULL,"
            f" 'proto_version', '1', 'publication_names', '{database.name}', 'binary', 'true')"
        )
        inserts = [message for (data,) in sent if isinstance(message := read_message(bytes(data)), Insert)]  # type: ignore[call-overload]
        assert any(isinstance(value, BinaryValue) for value in inserts[0].new)
        for one in followed:
            synced(one)
            one.assert_equal()
        text, binary_rows = (one.lake_rows(one.names[0]) for one in followed)
        assert text == binary_rows
