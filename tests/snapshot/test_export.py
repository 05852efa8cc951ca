"""A snapshot and the changes meet at one LSN, and a value looks the same on both ways."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pydantic import SecretStr

from spark_jobs.capture.plugins import plugin_options
from spark_jobs.decode.values import cast_text
from spark_jobs.errors import CdcError, SourceError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected, conninfo
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.slot import create_slot, read_window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.snapshot.export import CtidRange, ctid_ranges, range_query, snapshot_column
from spark_jobs.snapshot.exporter import exported_snapshot
from spark_jobs.snapshot.range_read import read_range
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

# column type, value: those whose text output and cast to text differ, and those that are easily mishandled
VALUES = [
    ("bool", "true"),
    ('"char"', "'x'"),
    ('"char"', "'\\377'"),
    ("bpchar(5)", "'ab'"),
    ("varchar(5)", "'ab '"),
    ("name", "'n'"),
    ("int2", "-1"),
    ("float8", "0.1::float8 + 0.2::float8"),
    ("float8", "'-0'"),
    ("float8", "'NaN'"),
    ("float4", "'-Infinity'"),
    ("float4", "0.1"),
    ("numeric", "'1.10'"),
    ("numeric(12,4)", "'-12345.6789'"),
    ("numeric(12,4)", "'NaN'"),
    ("numeric(38,0)", "'-99999999999999999999999999999999999999'"),
    ("numeric(39,1)", "'1.5'"),
    ("money", "1234.5"),
    ("date", "'infinity'"),
    ("date", "'0044-03-15 BC'"),
    ("date", "'2024-02-29'"),
    ("timestamp", "'1999-12-31 23:59:59.999999'"),
    ("timestamp", "'-infinity'"),
    ("timestamptz", "'0001-01-01 00:00+00'"),
    ("timestamptz", "'10000-01-01 00:00+00'"),
    ("timestamptz", "'2024-07-01 12:00+05:30'"),
    ("timetz", "'12:00:00.5+02'"),
    ("interval", "'1 year -2 days 00:00:03.5'"),
    ("bytea", r"'\x00ff'"),
    ("inet", "'10.0.0.1/32'"),
    ("cidr", "'10.0.0.0/8'"),
    ("macaddr", "'08:00:2b:01:02:03'"),
    ("bit(4)", "B'0101'"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    ("json", "'{\"a\" :  1}'"),
    ("jsonb", '\'{"b":2,"a" :  1}\''),
    ("xml", "'<a>ä</a>'"),
    ("point", "'(1,2.5)'"),
    ("tsvector", "'a fat cat'"),
    ("pg_lsn", "'16/B374D848'"),
    ("int[]", "'{{1,NULL},{3,4}}'"),
    ("text[]", "ARRAY['a b', NULL, 'NULL', '\"q\"', '']"),
    ("int4range", "'[1,5]'"),
    ("regclass", "'pg_class'"),
    ("refcursor", "'portal \"two\"'"),
    ("refcursor", "''"),
    ("refcursor", "NULL"),
    ("refcursor[]", "ARRAY['a b', NULL]::refcursor[]"),
    ('public."Mood"', "'so so'"),
    ('public."Mood"[]', "'{\"so so\"}'"),
    ("public.pair", "ROW(1, 'a \"b\"')"),
    ("public.pair", "ROW(NULL, NULL)"),
    ("public.positive", "7"),
    ("public.more_positive", "8"),
    ("public.words", "ARRAY['x', 'y']"),
    ("public.mild", "'ok'"),
    ("public.mild", "NULL"),
    ("public.mild[]", "ARRAY['ok']::public.mild[]"),
    ("public.couple", "ROW(NULL, 'b')"),
    ("public.span", "'[1,3)'"),
    ("public.spans", "'{[1,3)}'"),
    ("text", "NULL"),
    ("text", "''"),
]
TYPES = [
    "CREATE TYPE public.\"Mood\" AS ENUM ('so so', 'ok')",
    "CREATE TYPE public.pair AS (a int, b text)",
    "CREATE DOMAIN public.positive AS numeric(5,2)",
    "CREATE DOMAIN public.more_positive AS public.positive CHECK (VALUE > 0)",
    "CREATE DOMAIN public.words AS text[]",
    'CREATE DOMAIN public.milder AS public."Mood"',
    "CREATE DOMAIN public.mild AS public.milder",
    "CREATE DOMAIN public.couple AS public.pair",
    "CREATE DOMAIN public.span AS int4range",
    "CREATE DOMAIN public.spans AS int4multirange",
]


def test_gives_the_lake_values_of_what_the_output_plugin_sends(every_database: Database, tmp_path: Path) -> None:
    # the wheel's servers are built without libxml
    values = [(kind, value) for kind, value in VALUES if kind != "xml" or every_database.server.version == 15]
    every_database.execute(*TYPES)
    # a database whose own settings would print everything otherwise
    for setting in (
        "TimeZone = 'Asia/Tokyo'",
        "DateStyle = 'German'",
        "IntervalStyle = 'iso_8601'",
        "bytea_output = 'escape'",
    ):
        every_database.execute(f"ALTER DATABASE {every_database.name} SET {setting}")
    sent, facts = _on_both_ways(every_database, tmp_path, values)
    assert "2024-07-01 06:30:00+00" in sent
    assert facts.primary_key == facts.replica_identity == ("id",)
    by_name = {column.attname: column for column in facts.columns}
    more_positive = by_name[f"c{[kind for kind, _ in values].index('public.more_positive')}"]
    assert (more_positive.lake_type.sql, more_positive.typname) == ("decimal(5,2)", "public.more_positive")


def test_of_every_type_of_the_server(every_database: Database, tmp_path: Path) -> None:
    """Each that a column may have, as it is, as an array, as a domain and as a range."""
    values: list[tuple[str, str]] = []
    without_value, impossible = set(), set()
    with every_database.connect() as connection:
        for name, attributes, has_array in connection.execute(_EVERY_TYPE).fetchall():
            assert isinstance(name, str)
            try:
                connection.execute(f"CREATE TABLE possible (c {name})")
            except psycopg.errors.InvalidTableDefinition:
                impossible.add(name)
                continue
            connection.execute("DROP TABLE possible")
            value = _literal(connection, name, attributes)
            if value == "NULL":
                without_value.add(name)
            domain = f"public.domain_{len(values)}"
            connection.execute(f"CREATE DOMAIN {domain} AS {name}")
            values += [(name, value), (domain, value)]
            if has_array:
                values.append((f"{name}[]", f"ARRAY[{value}, NULL]::{name}[]"))
            span = f"public.range_{len(values)}"
            try:
                connection.execute(f"CREATE TYPE {span} AS RANGE (subtype = {name})")
            except psycopg.errors.UndefinedObject:  # it has no order
                continue
            values.append((span, f"{span}({value}, NULL)"))
    assert without_value <= _WITHOUT_INPUT
    assert impossible <= _OF_PSEUDO_TYPES
    assert {"refcursor", "refcursor[]", "int4multirange", "pg_class"} <= {kind for kind, _ in values}
    for first in range(0, len(values), 90):
        _on_both_ways(every_database, tmp_path, values[first : first + 90])


# arrays come with their elements; row types have as many attributes as commas and one. Two of the catalogue's row types
# stand for all: they differ in their attributes alone
_EVERY_TYPE = """
SELECT format_type(t.oid, NULL), (SELECT relnatts::int FROM pg_class WHERE oid = t.typrelid), t.typarray <> 0
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.typtype IN ('b', 'd', 'e', 'r', 'm', 'c') AND t.typcategory <> 'A' AND n.nspname !~ '^pg_(toast|temp)'
  AND (t.typtype <> 'c' OR t.typname IN ('pg_class', 'pg_attribute'))
ORDER BY t.oid
"""
_LITERALS = (
    *("1", "a", "{}", "empty", "(1,2)", "(0,1)", "[(1,2),(3,4)]", "{1,2,3}", "<(1,2),3>", "10.0.0.0/8", "2024-02-29"),
    *("08:00:2b:01:02:03", "12:00", "1 day", "16/B374D848", "10:20:10,15", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    *("(1,1),(0,0)", "=r/postgres", "$.a", "<a/>", "YES", "t"),
)
# values of these come from the server alone
_WITHOUT_INPUT = {
    *("gtsvector", "pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "xml"),
    *("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
}
# it has an attribute of type anyarray
_OF_PSEUDO_TYPES = {"pg_attribute"}


def _literal(connection: psycopg.Connection[tuple[object, ...]], name: str, attributes: object) -> str:
    """A literal of this type; NULL if its input function takes none of those above."""
    row = "(" + "," * (int(str(attributes)) - 1) + ")" if attributes else None
    for text in (row,) if row else _LITERALS:
        literal = f"'{text}'::{name}"
        try:
            connection.execute(f"SELECT {literal}")
        except psycopg.Error:
            continue
        return literal
    return "NULL"


def _on_both_ways(
    database: Database, tmp_path: Path, values: list[tuple[str, str]]
) -> tuple[list[str | None], RelationFacts]:
    """One row of these types and values, by snapshot and as a change, which must agree; what was sent."""
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(values))
    database.execute(
        "DROP PUBLICATION IF EXISTS p",
        "DROP TABLE IF EXISTS t",
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    source = pipeline_of(database, tmp_path, publication="p").source
    with connected(source.dsn) as control, bulk_connection(conninfo(source.dsn)) as bulk:
        start = create_slot(control, source.slot, plugin="pgoutput").lsn
        database.execute(f"INSERT INTO t VALUES (1, {', '.join(value for _, value in values)})")
        window = Window(start, flushed_lsn(control))
        options = plugin_options(source, database.server.version * 10_000)
        with read_window(bulk, source.slot, window, options) as reader:
            messages = [m for batch in reader for m in batch.column(0).to_pylist()]
    [insert] = [message for message in messages if message[:1] == b"I"]
    sent = _tuple(insert)
    with exported_snapshot(source.dsn) as (snapshot, connection):
        [facts] = relation_facts(connection, names=[QualifiedName("public", "t")])
        [ctid_range] = ctid_ranges(connection, facts.relid)
        query = range_query(facts, ctid_range, [column.attname for column in facts.columns])
        [batch] = read_range(partial(bulk_connection, conninfo(source.dsn)), snapshot.snapshot_name, query)
    for read, text, facts_of in zip(batch.columns, sent, facts.columns, strict=True):
        column = snapshot_column(replace(facts_of, on_unrepresentable="null"))
        found = column.values(read, table="t").values
        sent_alone = pa.array([text], pa.string())
        fitted = cast_text(sent_alone, column.lake_type, name=column.name, table="t", on_unrepresentable="null")
        expected = fitted.values
        assert found.type == expected.type == column.lake_type.arrow
        if pa.types.is_floating(found.type):  # to Arrow NaN is no NaN, and 0 is -0
            found, expected = found.cast(pa.string()), expected.cast(pa.string())
        assert found.equals(expected), (facts_of.typname, text)
    return sent, facts


def _tuple(insert: bytes) -> list[str | None]:
    values: list[str | None] = []
    at = 8
    for _ in range(struct.unpack_from("!h", insert, 6)[0]):
        kind = insert[at : at + 1]
        if kind == b"n":
            values.append(None)
            at += 1
            continue
        assert kind == b"t"
        (length,) = struct.unpack_from("!i", insert, at + 1)
        values.append(insert[at + 5 : at + 5 + length].decode())
        at += 5 + length
    return values


def test_snapshot_holds_what_was_committed_before_its_lsn(every_database: Database) -> None:
    every_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 10000)")
    dsn = SecretStr(every_database.dsn)
    with exported_snapshot(dsn) as (snapshot, connection):
        every_database.execute("INSERT INTO t SELECT generate_series(10001, 20000)", "DELETE FROM t WHERE id <= 100")
        [(after,)] = every_database.execute("SELECT pg_current_wal_lsn()::text")
        [facts] = relation_facts(connection, names=[QualifiedName("public", "t")])
        ranges = ctid_ranges(connection, facts.relid, range_bytes=64 << 10)
        assert len(ranges) > 5
        rows = [
            value
            for part in ranges
            for batch in read_range(
                partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, range_query(facts, part, ["id"])
            )
            for value in batch.column(0).to_pylist()
        ]
        assert sorted(rows) == list(range(1, 10001))
        temporary = every_database.execute(
            f"SELECT 1 FROM pg_replication_slots WHERE database = '{every_database.name}'"
        )
        assert temporary == [], "the copy must not hold WAL back"
    assert str(after) != str(snapshot.lsn)
    with pytest.raises(CdcError, match="snapshot"):
        list(
            read_range(
                partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, range_query(facts, ranges[0], ["id"])
            )
        )


def test_partitions_and_inheritance_are_cut_leaf_by_leaf(every_database: Database) -> None:
    every_database.execute(
        "CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE part_2 (v text, gone int, id int NOT NULL)",
        "ALTER TABLE part_2 DROP COLUMN gone",
        "ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (20)",
        "INSERT INTO part SELECT g, 'v' || g FROM generate_series(0, 19) g",
    )
    dsn = SecretStr(every_database.dsn)
    with exported_snapshot(dsn) as (snapshot, connection):
        [facts] = relation_facts(connection, names=[QualifiedName("public", "part")])
        ranges = ctid_ranges(connection, facts.relid)
        assert [part.leaf.relname for part in ranges] == ["part_1", "part_2"]
        rows = [
            tuple(row.values())
            for part in ranges
            for batch in read_range(
                partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, range_query(facts, part, ["id", "v"])
            )
            for row in batch.to_pylist()
        ]
    assert sorted(rows) == [(g, f"v{g}") for g in range(20)]


@pytest.mark.parametrize(
    ("ddl", "seen", "in_ranges"),
    [
        ("ALTER TABLE t ALTER v TYPE bigint", None, None),
        ("ALTER TABLE t ADD w float DEFAULT random()", None, None),
        ("ALTER TABLE t SET UNLOGGED", None, None),
        ("DROP TABLE t", None, None),
        # a TRUNCATE comes through the slot, and takes with it what was there before
        ("TRUNCATE t", 0, None),
        # moves rows: right in one go, not from range to range
        ("VACUUM FULL t", 2000, None),
        ("ALTER TABLE t ADD CHECK (v > 0)", 2000, 2000),
        ("UPDATE t SET v = 0", 2000, 2000),
    ],
)
def test_rows_that_ddl_rewrote_meanwhile_are_an_error_and_not_missing(
    database: Database, ddl: str, seen: int | None, in_ranges: int | None
) -> None:
    """An old snapshot sees nothing of a table that ALTER TABLE has rewritten since."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)",
        "INSERT INTO t SELECT g, g FROM generate_series(1, 2000) g",
    )
    dsn = SecretStr(database.dsn)
    with exported_snapshot(dsn) as (snapshot, connection):
        [facts] = relation_facts(connection, names=[QualifiedName("public", "t")])
        whole, parts = (ctid_ranges(connection, facts.relid, size) for size in (64 << 20, 32 << 10))
        assert (len(whole), len(parts) > 1) == (1, True)

        def read(ranges: tuple[CtidRange, ...]) -> int:
            queries = [range_query(facts, part, ["id"]) for part in ranges]
            return sum(
                len(batch)
                for q in queries
                for batch in read_range(partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, q)
            )

        assert read(whole) == read(parts) == 2000
        database.execute(ddl)
        for ranges, expected in ((whole, seen), (parts, in_ranges)):
            if expected is None:
                with pytest.raises(SourceError, match=r"was rewritten by DDL|does not exist"):
                    read(ranges)
            else:
                assert read(ranges) == expected


@pytest.mark.parametrize(
    ("repack", "columns", "seen"),
    [
        ("REPACK t", "id int PRIMARY KEY, v text", 2000),
        ("REPACK (CONCURRENTLY) t", "id int PRIMARY KEY, v text", None),
        ("REPACK (CONCURRENTLY) t", "id int PRIMARY KEY, v int", None),
        # without a TOAST table, nothing tells these from the one before
        ("REPACK t", "id int PRIMARY KEY, v int", None),
        ("TRUNCATE t", "id int PRIMARY KEY, v int", None),
        ("TRUNCATE t", "id int PRIMARY KEY, v text", 0),
    ],
)
def test_rows_that_repack_wrote_again_meanwhile_are_an_error_and_not_missing(
    database_19: Database, repack: str, columns: str, seen: int | None
) -> None:
    """REPACK (CONCURRENTLY) gives each row a new ``xmin``, so that an old snapshot sees none of them."""
    database = database_19
    database.execute(f"CREATE TABLE t ({columns})", "INSERT INTO t SELECT g, g FROM generate_series(1, 2000) g")
    dsn = SecretStr(database.dsn)
    with exported_snapshot(dsn) as (snapshot, connection):
        [facts] = relation_facts(connection, names=[QualifiedName("public", "t")])
        query = range_query(facts, ctid_ranges(connection, facts.relid)[0], ["id"])

        def read() -> int:
            return sum(
                len(batch)
                for batch in read_range(partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, query)
            )

        assert read() == 2000
        database.execute(repack)
        if seen is None:
            with pytest.raises(SourceError, match="was rewritten by DDL"):
                read()
        else:
            assert read() == seen
