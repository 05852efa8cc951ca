"""What the catalogue tells of changes that no row event tells of, on every server version: captured, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.fingerprints import Watched, fingerprints
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

SCHEMA = (
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    "CREATE TYPE place AS (x int, y int)",
    "CREATE TABLE plain (id int PRIMARY KEY, a text, b text, n numeric(10,2), m mood[], at place)",
    "CREATE TABLE narrow (id int PRIMARY KEY, n int)",
    "CREATE TABLE whole (id int PRIMARY KEY, n int)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "INSERT INTO whole SELECT g, g FROM generate_series(0, 19) g",
    "CREATE TABLE parted (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
    "INSERT INTO plain SELECT g, 'a', 'b', g, '{good}', ROW(g, g)::place FROM generate_series(0, 19) g",
    "INSERT INTO narrow SELECT g, g FROM generate_series(0, 19) g",
    "INSERT INTO parted SELECT g, 'x' FROM generate_series(0, 19) g",
)
TABLES = ("plain", "narrow", "whole", "parted")
ANOTHER = "CREATE TABLE other (id int PRIMARY KEY, t text); INSERT INTO other VALUES (25, 'before')"

# where an event is captured in two parts: its first part is no change, or one
NO_CHANGE, CHANGE = CAPTURED = ("-- captured", "-- captured again")
# name → what is done between two captures, the table that it changes, and the reason that is given; {s} is the schema
EVENTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "rewritten by USING": (("ALTER TABLE plain ALTER a TYPE text USING a || '!'",), "plain", "it was rewritten by DDL"),
    "rewritten by USING, without a TOAST table": (
        ("ALTER TABLE narrow ALTER n TYPE int USING n + 1",),
        "narrow",
        "it was rewritten by DDL, or unlogged for a time",
    ),
    "to another type and back": (
        ("ALTER TABLE plain ALTER a TYPE char(3)", "ALTER TABLE plain ALTER a TYPE text"),
        "plain",
        "it was rewritten by DDL",
    ),
    "a type of the same lake type": (
        ("ALTER TABLE plain ALTER a TYPE varchar(1)",),
        "plain",
        "it was rewritten by DDL",
    ),
    "a numeric of another scale": (
        ("ALTER TABLE plain ALTER n TYPE numeric(12,3)",),
        "plain",
        "the type of column n was changed",
    ),
    "a wider numeric, and written again": (
        ("ALTER TABLE plain ALTER n TYPE numeric(12,2) USING n + 1",),
        "plain",
        "the type of column n was changed; it was rewritten by DDL",
    ),
    "added, and the file that lacks it written again": (
        ("ALTER TABLE plain ADD c text DEFAULT 'x'", "VACUUM FULL plain"),
        "plain",
        "column c was added",
    ),
    "added with a default of its own for each row": (
        ("ALTER TABLE plain ADD c float DEFAULT random()",),
        "plain",
        "column c was added; it was rewritten by DDL",
    ),
    "added to partitions, where each may say what its rows hold": (
        ("ALTER TABLE parted ADD c text DEFAULT 'x'",),
        "parted",
        "column c was added",
    ),
    "added, dropped, and added again": (
        (
            "ALTER TABLE narrow ADD c int",
            "UPDATE narrow SET c = 1 WHERE id = 1",
            "ALTER TABLE narrow DROP c",
            "ALTER TABLE narrow ADD c int",
        ),
        "narrow",
        "column c may have the name of one that was added and dropped before it",
    ),
    "an expression dropped: the column is sent from then on": (
        (
            "ALTER TABLE narrow ADD g int GENERATED ALWAYS AS (n * 2) STORED",
            "-- captured again",
            "ALTER TABLE narrow ALTER g DROP EXPRESSION",
        ),
        "narrow",
        "column g is no longer generated",
    ),
    "a key dropped while rows come whole, and made again": (
        (
            "ALTER TABLE whole DROP CONSTRAINT whole_pkey",
            "INSERT INTO whole VALUES (1, 1)",
            "DELETE FROM whole WHERE ctid = (SELECT max(ctid) FROM whole WHERE id = 1)",
            "ALTER TABLE whole ADD PRIMARY KEY (id)",
        ),
        "whole",
        "the primary key of {s}.whole was dropped for a time",
    ),
    "a partitioned table's key dropped while rows come whole, and made again": (
        (
            "ALTER TABLE parted_1 REPLICA IDENTITY FULL",
            "ALTER TABLE parted_2 REPLICA IDENTITY FULL",
            "-- captured again",
            "ALTER TABLE parted DROP CONSTRAINT parted_pkey",
            "INSERT INTO parted VALUES (1, 'x')",
            "DELETE FROM parted WHERE ctid = (SELECT max(ctid) FROM parted WHERE id = 1)",
            "ALTER TABLE parted ADD PRIMARY KEY (id)",
        ),
        "parted",
        "the primary key of {s}.parted was dropped for a time",
    ),
    "a label renamed": (
        ("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",),
        "plain",
        "a label of enum mood was renamed",
    ),
    "a label that had another name": (
        ("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'", "ALTER TYPE mood RENAME VALUE 'fine' TO 'good'"),
        "plain",
        "a label of enum mood was renamed",
    ),
    "an attribute added and dropped": (
        ("ALTER TYPE place ADD ATTRIBUTE z int", "ALTER TYPE place DROP ATTRIBUTE z"),
        "plain",
        "attributes of type place were added or dropped",
    ),
    "an attribute added": (
        ("ALTER TYPE place ADD ATTRIBUTE z int",),
        "plain",
        "attributes of type place were added or dropped",
    ),
    "another identity": (
        ("ALTER TABLE plain DROP CONSTRAINT plain_pkey, ADD PRIMARY KEY (id, a)",),
        "plain",
        "the replica identity of {s}.plain was changed",
    ),
    "out of the publication for a time": (
        ("ALTER PUBLICATION {p} DROP TABLE plain", "ALTER PUBLICATION {p} ADD TABLE plain"),
        "plain",
        "it was not published for a time, or its publication, row filter or column list was altered",
    ),
    "dropped and created": (
        (
            "DROP TABLE plain",
            "CREATE TABLE plain (id int PRIMARY KEY, a text, b text, n numeric(10,2), m mood[], at place)",
            "ALTER PUBLICATION {p} ADD TABLE plain",
        ),
        "plain",
        "another table has the name {s}.plain now",
    ),
    "in another schema for a time": (
        ("CREATE SCHEMA away", "ALTER TABLE plain SET SCHEMA away", "ALTER TABLE away.plain SET SCHEMA {s}"),
        "plain",
        "it had another name or schema for a time",
    ),
    "a partition attached with its rows": (
        (ANOTHER, "ALTER TABLE parted ATTACH PARTITION other FOR VALUES FROM (20) TO (30)"),
        "parted",
        "partition {s}.other was attached",
    ),
    "a partition attached in the transaction that made it": (
        (f"BEGIN; {ANOTHER}; ALTER TABLE parted ATTACH PARTITION other FOR VALUES FROM (20) TO (30); COMMIT",),
        "parted",
        "partition {s}.other was attached",
    ),
    "a partition detached": (
        ("ALTER TABLE parted DETACH PARTITION parted_2",),
        "parted",
        "partition {s}.parted_2 was detached or dropped",
    ),
    "a partition dropped": (("DROP TABLE parted_2",), "parted", "partition {s}.parted_2 was detached or dropped"),
    "a partition truncated on its own": (
        ("TRUNCATE parted_2", "INSERT INTO parted VALUES (11, 'after')"),
        "parted",
        "partition {s}.parted_2 was truncated on its own, or rewritten",
    ),
    "a partition detached, changed, attached again": (
        (
            "ALTER TABLE parted DETACH PARTITION parted_2",
            "UPDATE parted_2 SET t = 'unseen'",
            "ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (10) TO (20)",
        ),
        "parted",
        "partition {s}.parted_2 was attached",
    ),
    "a partition unlogged for a time": (
        ("ALTER TABLE parted_1 SET UNLOGGED", "UPDATE parted_1 SET t = 'unseen'", "ALTER TABLE parted_1 SET LOGGED"),
        "parted",
        "partition {s}.parted_1 was rewritten by DDL",
    ),
    "the identity of a leaf": (
        ("ALTER TABLE parted_1 REPLICA IDENTITY FULL",),
        "parted",
        "the replica identity of {s}.parted_1 was changed",
    ),
    "the identity of a leaf, for a time": (
        (
            "ALTER TABLE parted_1 ALTER t SET NOT NULL",
            "CREATE UNIQUE INDEX parted_1_t ON parted_1 (id, t)",
            "-- captured",
            "ALTER TABLE parted_1 REPLICA IDENTITY USING INDEX parted_1_t",
            "ALTER TABLE parted_1 REPLICA IDENTITY DEFAULT",
        ),
        "parted",
        "the replica identity of {s}.parted_1 was another for a time",
    ),
    "publish narrowed and widened": (
        (
            "ALTER PUBLICATION {p} SET (publish = 'insert')",
            "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')",
        ),
        "plain",
        "it was not published for a time, or its publication, row filter or column list was altered",
    ),
}

OF_ALL_TABLES = ("publish narrowed and widened",)

# name → what is done between two captures, and what the lake follows in place
FOLLOWED: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "names swapped": (
        tuple(f"ALTER TABLE plain RENAME {a} TO {b}" for a, b in (("a", "x"), ("b", "a"), ("x", "b"))),
        "plain",
        ("column a was renamed to b", "column b was renamed to a"),
    ),
    "dropped and added again": (
        ("ALTER TABLE plain DROP a", "ALTER TABLE plain ADD a text"),
        "plain",
        ("column a was added", "column a was dropped"),
    ),
    "added with a default": (("ALTER TABLE plain ADD c text DEFAULT 'x'",), "plain", ("column c was added",)),
    "the key renamed": (('ALTER TABLE plain RENAME id TO "Id, 2"',), "plain", ("column id was renamed to Id, 2",)),
    "the key of a root and its partitions renamed": (
        ("ALTER TABLE parted RENAME id TO number",),
        "parted",
        ("column id was renamed to number",),
    ),
    "dropped from a root and its partitions": (("ALTER TABLE parted DROP t",), "parted", ("column t was dropped",)),
    "a numeric widened": (
        ("ALTER TABLE plain ALTER n TYPE numeric(12,2)",),
        "plain",
        ("column n was widened",),
    ),
    "dropped, and written again": (
        ("ALTER TABLE plain DROP a", "VACUUM FULL plain"),
        "plain",
        ("column a was dropped",),
    ),
}

HARMLESS = (
    "VACUUM FULL plain",
    "VACUUM FULL narrow",
    "VACUUM FULL parted_1",
    "CLUSTER plain USING plain_pkey",
    "CLUSTER narrow USING narrow_pkey",
    "CLUSTER parted_1 USING parted_1_pkey",
    "CREATE INDEX ON plain (a)",
    "CREATE UNIQUE INDEX ON parted (id)",
    "REINDEX TABLE plain",
    "REINDEX TABLE CONCURRENTLY whole",
    "ALTER TABLE plain ADD CHECK (id >= 0)",
    "ALTER TABLE narrow ALTER n SET NOT NULL",
    "ALTER TABLE plain ALTER a SET DEFAULT 'later'",
    "ALTER TABLE plain ALTER a SET STATISTICS 100",
    "ALTER TABLE plain ALTER a SET STORAGE EXTERNAL",
    "ALTER TABLE plain SET (fillfactor = 80)",
    "ALTER TABLE plain ALTER a TYPE varchar",
    "COMMENT ON TABLE plain IS 'x'",
    "COMMENT ON COLUMN plain.a IS 'x'",
    "ANALYZE",
    "VACUUM FREEZE",
    "GRANT SELECT ON plain, narrow, parted, parted_1 TO PUBLIC",
    "GRANT UPDATE (a) ON plain TO PUBLIC",
    "GRANT UPDATE (n) ON narrow TO PUBLIC",
    "ALTER TYPE mood ADD VALUE 'so-so'",
    "ALTER TYPE place RENAME ATTRIBUTE x TO y2",
    "CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM (20) TO (30)",
    "BEGIN; CREATE TABLE parted_4 PARTITION OF parted FOR VALUES FROM (30) TO (40); INSERT INTO parted VALUES (31);END",
    "CREATE TABLE parted_5 PARTITION OF parted FOR VALUES FROM (50) TO (60) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_51 PARTITION OF parted_5 FOR VALUES FROM (50) TO (55)",
    "CREATE SUBSCRIPTION nothing CONNECTION '' PUBLICATION none WITH (connect = false, slot_name = NONE)",
    "DROP SUBSCRIPTION nothing",
    "ALTER PUBLICATION {p} SET TABLE parted, narrow, whole, plain",
)


REPACKS = (
    "REPACK plain",
    "REPACK narrow",
    "REPACK parted_1 USING INDEX parted_1_pkey",
    "REPACK (CONCURRENTLY) plain",
    "REPACK (CONCURRENTLY) narrow",
)


def _in_schema(database: Database, schema: str, *statements: str) -> None:
    database.execute(f"SET search_path = {schema}", *statements)


def _pipeline(database: Database, folder: Path, *schemas: str) -> Pipeline:
    """Of the tables of ``SCHEMA``, in each of these schemas."""
    schemas = schemas or ("public",)
    for schema in schemas:
        _in_schema(database, schema, f"CREATE SCHEMA IF NOT EXISTS {schema}", *SCHEMA)
    pipeline = pipeline_of(database, folder / "lake", *(f"{schema}.{name}" for schema in schemas for name in TABLES))
    prepare(pipeline)
    for schema in schemas:
        _in_schema(database, schema, "INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    return pipeline


def _changed(pipeline: Pipeline) -> dict[str, str]:
    """The reasons that a capture gives, by relname. A first look has none."""
    return {relname: reasons for (_, relname), reasons in _changed_in_schemas(pipeline).items()}


def _changed_in_schemas(pipeline: Pipeline) -> dict[tuple[str, str], str]:
    """The same, by schema and relname.

    A moved file waits for the TRUNCATE that may explain it, until the log is past the look: other processes of the
    server write WAL too, so that may take another window.
    """
    landed = list(capture(pipeline).landed)
    while landed and landed[-1].catalogue is not None and landed[-1].catalogue.moved:
        landed += capture(pipeline).landed
    return {
        (table.nspname, table.relname): "; ".join(table.reasons)
        for marker in landed
        for table in (marker.catalogue.changed if marker.catalogue else ())
        if table.reasons
    }


def _logs(events: Iterable[str], *, together: bool) -> Iterator[dict[str, str]]:
    """By log, the schema of each of its events."""
    schemas = {name: f"s{number}" for number, name in enumerate(events)}
    alone = [name for name in schemas if name in OF_ALL_TABLES or not together]
    yield from ({name: schemas.pop(name)} for name in alone)
    if schemas:
        yield schemas


# each event is in a schema of its own, and a table's fingerprint is of this table alone
TOGETHER = pytest.mark.parametrize("together", [True, at_night(False)], ids=["at once", "one after the other"])


@TOGETHER
def test_each_change_without_an_event_is_seen_and_its_reason_given(
    every_database: Database, tmp_path: Path, together: bool
) -> None:
    failures: dict[str, object] = {}
    for number, schemas in enumerate(_logs(EVENTS, together=together)):
        pipeline = _pipeline(every_database, tmp_path / str(number), *schemas.values())
        publication = pipeline.source.publications[0]
        early, late = dict[str, list[str]](), dict[str, list[str]]()
        for name, schema in schemas.items():
            statements = [each.format(p=publication, s=schema) for each in EVENTS[name][0]]
            captured = next((place for place, each in enumerate(statements) if each in CAPTURED), 0)
            early[name], late[name] = statements[:captured], statements[captured:]
        for name, schema in schemas.items():
            _in_schema(every_database, schema, *early[name])
        changed = {schema for name, schema in schemas.items() if late[name][0] == CHANGE}
        assert {schema for schema, _ in _changed_in_schemas(pipeline)} == changed
        for name, schema in schemas.items():
            _in_schema(every_database, schema, *late[name])
        seen = _changed_in_schemas(pipeline)
        for name, schema in schemas.items():
            _, relname, reason = EVENTS[name]
            found = {table: why for (nspname, table), why in seen.items() if nspname == schema}
            only = set(found) == {relname} or name in OF_ALL_TABLES
            if not only or reason.format(s=schema) not in found.get(relname, ""):
                failures[name] = found
        if again := _changed_in_schemas(pipeline):
            failures[f"{list(schemas)}, once more"] = again
        _begin_again(every_database, pipeline, *schemas.values())
    assert failures == {}


@TOGETHER
def test_ddl_that_is_followed_in_place_comes_with_the_facts(
    every_database: Database, tmp_path: Path, together: bool
) -> None:
    for number, schemas in enumerate(_logs(FOLLOWED, together=together)):
        pipeline = _pipeline(every_database, tmp_path / str(number), *schemas.values())
        for name, schema in schemas.items():
            _in_schema(every_database, schema, *FOLLOWED[name][0])
        (marker,) = capture(pipeline).landed
        assert marker.catalogue is not None
        changes = {changed.nspname: changed for changed in marker.catalogue.changed}
        assert len(changes) == len(marker.catalogue.changed) == len(schemas)
        for name, schema in schemas.items():
            changed, (_, relname, columns) = changes[schema], FOLLOWED[name]
            assert (changed.relname, changed.reasons) == (relname, ()), name
            assert changed.columns == columns, name
            (landed,) = ChangeLog(pipeline.lake.change_log).facts(marker.ordinal, marker.ordinal, [changed.relid])
            assert landed.version is None
            numbers = {column.attnum for column in landed.facts.columns}
            assert set(changed.added) <= numbers
            assert bool(changed.added) == any("added" in column for column in columns), name
        assert _changed(pipeline) == {}
        _begin_again(every_database, pipeline, *schemas.values())


def _begin_again(database: Database, pipeline: Pipeline, *schemas: str) -> None:
    database.execute(
        f"SELECT pg_drop_replication_slot('{pipeline.source.slot}')",
        f"DROP PUBLICATION {pipeline.source.publications[0]}",
        *(f"DROP SCHEMA IF EXISTS {schema} CASCADE" for schema in (*schemas, "away", "public")),
        "CREATE SCHEMA public",
    )


def test_what_leaves_the_rows_alone_is_no_change(every_database: Database, tmp_path: Path) -> None:
    pipeline = _pipeline(every_database, tmp_path)
    publication = pipeline.source.publications[0]
    every_database.execute(*(statement.format(p=publication) for statement in HARMLESS))
    assert _changed(pipeline) == {}
    if every_database.server.version >= 19:
        every_database.execute(*REPACKS)
        assert _changed(pipeline) == {}
    every_database.execute("TRUNCATE plain, narrow", "TRUNCATE parted", "INSERT INTO parted VALUES (1, 'x')")
    assert _changed(pipeline) == {}


def test_a_repack_that_cannot_be_told_from_a_rewrite(database_19: Database, tmp_path: Path) -> None:
    """Of a partition, and where SET UNLOGGED would not be refused."""
    database = database_19
    pipeline = _pipeline(database, tmp_path / "listed")
    database.execute("REPACK (CONCURRENTLY) parted_1")
    assert _changed(pipeline) == {"parted": "partition public.parted_1 was rewritten by DDL"}
    _begin_again(database, pipeline)
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH (publish_via_partition_root)")
    pipeline = pipeline_of(database, tmp_path / "all")
    prepare(pipeline)
    database.execute("INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    database.execute("REPACK plain", "REPACK narrow")
    assert _changed(pipeline) == {}
    database.execute("REPACK (CONCURRENTLY) plain", "REPACK (CONCURRENTLY) narrow")
    assert _changed(pipeline) == {
        "plain": "it was rewritten by DDL",
        "narrow": "it was rewritten by DDL, or unlogged for a time",
    }


def test_a_truncate_of_a_table_without_toast_that_no_list_names(every_database: Database, tmp_path: Path) -> None:
    """FOR ALL TABLES lets SET UNLOGGED pass, and nothing else tells it from a TRUNCATE than the TRUNCATE itself."""
    database = every_database
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH (publish_via_partition_root)")
    pipeline = pipeline_of(database, tmp_path / "lake")
    prepare(pipeline)
    database.execute("INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    database.execute("TRUNCATE narrow", "INSERT INTO narrow VALUES (1, 1)")
    assert _changed(pipeline) == {}
    database.execute("ALTER TABLE narrow SET UNLOGGED", "INSERT INTO narrow VALUES (2, 2)")
    database.execute("ALTER TABLE narrow SET LOGGED", "INSERT INTO narrow VALUES (3, 3)")
    assert _changed(pipeline) == {"narrow": "it was rewritten by DDL, or unlogged for a time"}
    database.execute("VACUUM FULL narrow")
    assert _changed(pipeline) == {}


# pg_class has the subtransaction's number, the TRUNCATE its transaction's
BEHIND_SAVEPOINTS = (
    "BEGIN",
    "UPDATE plain SET id = id WHERE id = 1",
    "SAVEPOINT a",
    "TRUNCATE narrow",
    "SAVEPOINT b",
    "TRUNCATE parted",
    "RELEASE SAVEPOINT b",
    "INSERT INTO narrow SELECT g, g FROM generate_series(1, {rows}) g",
    "COMMIT",
)


@pytest.mark.parametrize("rows", [3, 2000])
def test_a_truncate_behind_a_savepoint_is_known_by_its_stream(
    every_database: Database, tmp_path: Path, rows: int
) -> None:
    """Up to version 15 only a transaction of 64 kB and more is streamed: of a small one, a snapshot too many, and none
    too few."""
    database = every_database
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH (publish_via_partition_root)")
    pipeline = pipeline_of(database, tmp_path / "lake")
    prepare(pipeline)
    database.execute("INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    truncating = [statement.format(rows=rows) for statement in BEHIND_SAVEPOINTS]
    database.execute(*truncating)
    known = rows > 1000 or database.server.version >= 16
    assert set(_changed(pipeline)) == (set() if known else {"narrow", "parted"})
    # what another transaction does after it is a change, whatever was truncated before
    database.execute(*truncating, "ALTER TABLE narrow SET UNLOGGED", "ALTER TABLE narrow SET LOGGED")
    partition = database.execute("SELECT min(relid::text) FROM pg_partition_tree('parted') WHERE isleaf")[0][0]
    database.execute("BEGIN", "SAVEPOINT s", f"TRUNCATE {partition}", "COMMIT")
    assert set(_changed(pipeline)) == {"narrow", "parted"}


def test_a_truncate_that_the_log_reaches_windows_later(every_database: Database, tmp_path: Path) -> None:
    """The catalogue is seen as it is now, the slot is read as it was then."""
    database = every_database
    database.execute(*SCHEMA, f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH (publish_via_partition_root)")
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), windows=WindowLimits(max_bytes=1000, max_per_run=100))
    prepare(pipeline)
    database.execute("INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    database.execute(*[f"INSERT INTO plain VALUES ({-n}, repeat('a row is a window ', 99))" for n in range(1, 4)])
    database.execute("TRUNCATE narrow", "INSERT INTO narrow VALUES (1, 1)")
    first = capture(pipeline, max_windows=1).landed[0].catalogue
    assert first is not None
    assert [file.table.relname for file in first.moved] == ["narrow"]
    assert _changed(pipeline) == {}
    database.execute(*[f"INSERT INTO plain VALUES ({-n}, repeat('a row is a window ', 99))" for n in range(4, 7)])
    database.execute("ALTER TABLE narrow SET UNLOGGED", "INSERT INTO narrow VALUES (2, 2)")
    database.execute("ALTER TABLE narrow SET LOGGED", "TRUNCATE plain")
    not_yet = capture(pipeline, max_windows=1).landed[0].catalogue
    assert not_yet is not None
    assert not_yet.changed == ()
    assert _changed(pipeline) == {"narrow": "it was rewritten by DDL, or unlogged for a time"}


def test_with_test_decoding_a_name_or_key_that_was_another_for_a_time_is_seen(
    every_database: Database, tmp_path: Path
) -> None:
    """Its lines hold names: those under the other one are not kept. They do not say what the replica identity is."""
    database = every_database
    database.execute(*SCHEMA)
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in TABLES))
    pipeline = replace(pipeline, source=replace(pipeline.source, plugin="test_decoding"))
    prepare(pipeline)
    database.execute("INSERT INTO narrow VALUES (-1, -1)")
    assert _changed(pipeline) == {}, "a first look"
    database.execute("ALTER TABLE plain RENAME TO x", "UPDATE x SET a = 'unseen'", "ALTER TABLE x RENAME TO plain")
    database.execute("ALTER TABLE parted_1 RENAME TO x", "DELETE FROM x", "ALTER TABLE x RENAME TO parted_1")
    assert _changed(pipeline) == {
        "plain": "it had another name or schema for a time",
        "parted": "partition public.parted_1 had another name or schema for a time",
    }
    database.execute(
        "INSERT INTO narrow SELECT g, g FROM generate_series(0, 9) g ON CONFLICT DO NOTHING",
        "ALTER TABLE plain ALTER b SET NOT NULL",
        "CREATE UNIQUE INDEX other ON plain (id, b)",
    )
    assert _changed(pipeline) == {}
    database.execute(
        "ALTER TABLE plain REPLICA IDENTITY USING INDEX other",
        "UPDATE plain SET b = 'x' WHERE id = 1",
        "ALTER TABLE plain REPLICA IDENTITY DEFAULT",
        "ALTER TABLE narrow DROP CONSTRAINT narrow_pkey",
        "UPDATE narrow SET id = 30 WHERE n = 3",
        "ALTER TABLE narrow ADD PRIMARY KEY (id)",
    )
    assert _changed(pipeline) == {
        "plain": "the replica identity of public.plain was another for a time",
        "narrow": "the primary key of public.narrow was dropped for a time",
    }


def test_a_leaf_is_published_once_by_a_publication_of_all_tables(database: Database) -> None:
    """Earlier logs say so of it, too, though the tables above it are published by the same entry."""
    database.execute(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root DEFAULT",
        f'CREATE PUBLICATION "{database.name}" FOR ALL TABLES',
    )
    leaf = QualifiedName("public", "leaf")
    with connected(SecretStr(database.dsn)) as connection:
        found = fingerprints(connection, Watched((leaf,), (database.name,), {}))
    assert len(found[leaf].entries.split()) == 1
