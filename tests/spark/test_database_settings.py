"""What a DBA sets for a database or a role changes nothing in the lake, and stops nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from psycopg import sql

from spark_jobs.postgres.session_settings import PINNED_SETTINGS
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "default_transaction_read_only": "on",
    "statement_timeout": "300ms",
    "idle_in_transaction_session_timeout": "500ms",
    "idle_session_timeout": "700ms",
    "lock_timeout": "200ms",
    "search_path": "",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "array_nulls": "off",
    "TimeZone": "Asia/Kolkata",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "xmlbinary": "hex",
    "quote_all_identifiers": "on",
    "row_security": "on",
    "exit_on_error": "on",
    "client_min_messages": "debug1",
    "client_encoding": "LATIN1",
    "log_statement": "all",
    "log_min_duration_statement": "0",
    "lc_monetary": "C.UTF-8",
}
_SINCE_17 = {"transaction_timeout": "400ms"}
_ROWS = """
INSERT INTO facts SELECT g, g / 3.0, (g / 8.0)::real, '2024-02-03 04:05:06.789+00'::timestamptz + g * interval '1 h',
  make_interval(years => 1, days => -g, secs => 3.5), decode(md5(g::text), 'hex'), E'a\\\\b''c ä€ ' || g, g + 0.5,
  ARRAY['NULL', NULL, 'x y'], '2024-02-03'::date + g, xmlelement(name a, '\\x00ff'::bytea)
FROM generate_series({}, {}) g
"""


@pytest.fixture(params=[at_night(15), 18])
def settings_server(request: pytest.FixtureRequest) -> PostgresServer:
    found: PostgresServer = request.getfixturevalue(f"postgres_{request.param}")
    return found


@pytest.fixture
def hostile(settings_server: PostgresServer) -> Iterator[tuple[Database, str]]:
    """A database with a table, and the dsn of its owner; all of the settings on both. The superuser's are the usual."""
    with fresh_database(settings_server) as database, _follower(database) as role:
        database.execute(
            "CREATE TABLE facts (id int PRIMARY KEY, d double precision, r real, tz timestamptz, iv interval, by bytea,"
            " t text, m money, a text[], day date, x xml)",
            f"ALTER TABLE facts OWNER TO {role}",
            f"GRANT USAGE ON SCHEMA public TO {role}",
            _ROWS.format(1, 20_000),
        )
        settings = {**_HOSTILE, **(_SINCE_17 if settings_server.version >= 17 else {})}
        # what holds for a role in one database wins: the test's own sessions stay as they are
        usual = {**dict(PINNED_SETTINGS), "search_path": "public", **dict.fromkeys(_SINCE_17, "0")}
        calm = {name: usual[name] for name in settings if name in usual}
        statements = [_set(f"ROLE postgres IN DATABASE {database.name}", name, value) for name, value in calm.items()]
        statements += [_set(f"ROLE {role}", name, value) for name, value in settings.items()]
        statements += [_set(f"DATABASE {database.name}", name, value) for name, value in settings.items()]
        with database.connect() as admin:
            for statement in statements:
                admin.execute(statement)
        yield database, settings_server.dsn(database.name, user=role, password="follower's own")


@contextmanager
def _follower(database: Database) -> Iterator[str]:
    role = f"follower_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'follower''s own'",
        f"GRANT CREATE ON DATABASE {database.name} TO {role}",
    )
    yield role
    database.execute(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def _set(whose: str, name: str, value: str) -> sql.Composed:
    return sql.SQL("ALTER {} SET {} = {}").format(sql.SQL(whose), sql.SQL(name), sql.Literal(value))


@pytest.mark.parametrize("plugin", [at_night("pgoutput"), "test_decoding"])
def test_a_whole_sync_under_the_settings_of_others(
    spark: SparkSession,
    hostile: tuple[Database, str],
    tmp_path: Path,
    plugin: Literal["pgoutput", "test_decoding"],
) -> None:
    database, dsn = hostile
    pipeline = pipeline_of(database, tmp_path / "lake", "public.facts", dsn=dsn, plugin=plugin)
    followed = Followed(spark, database, pipeline, (QualifiedName("public", "facts"),))
    first = sync(pipeline, lambda: spark)
    assert (first.errors, [taken.rows for taken in first.snapshots]) == ((), [20_000])
    followed.assert_equal()
    database.execute(
        _ROWS.format(20_001, 60_000),
        "UPDATE facts SET d = d / 7, tz = tz + '1 us', by = NULL WHERE id % 3 = 0",
        "DELETE FROM facts WHERE id % 5 = 0",
        "UPDATE facts SET id = -id WHERE id < 100",
    )
    second = sync(pipeline, lambda: spark)
    assert (second.errors, [table.outcome for table in second.tables]) == ((), ["applied"])
    followed.assert_equal()
    third = sync(pipeline, lambda: spark)
    assert third.errors == ()
    followed.assert_equal()
