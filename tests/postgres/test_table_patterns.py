"""Patterns in ``tables:``: which tables they follow, from the first sync to tables that come, go and are renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import yaml

from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture, land_window
from spark_jobs.capture.session import capture_session
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.errors import ConfigurationError, DecodeError, PreconditionError, SourceUnreachableError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.table_mask import SALT_VARIABLE
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.publication import find_publication
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.tables.at_source import all_followed_names, resolved
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

Make = Callable[..., Pipeline]


@pytest.fixture
def make(database: Database, tmp_path: Path) -> Make:
    """The pipeline of a configuration file with these attributes."""

    def made(*tables: str | dict[str, Any], dsn: str = database.dsn, **attributes: Any) -> Pipeline:
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "type": "cdc_assets.PostgresCdcComponent",
                    "attributes": {
                        "name": database.name,
                        "lake": {"path": str(tmp_path / "lake")},
                        "merge": {"engine": "auto"},
                        **({"tables": list(tables)} if tables else {}),
                        **attributes,
                        "source": {"dsn": dsn, **attributes.get("source", {})},
                    },
                }
            )
        )
        return load_pipeline(file)

    return made


def create(database: Database, *tables: str, columns: str = "id int PRIMARY KEY, note text") -> None:
    for table in tables:
        database.execute(f"CREATE TABLE {table} ({columns})")
        database.execute(f"INSERT INTO {table} VALUES (1, 'secret')")


def rows(pipeline: Pipeline, name: str) -> list[dict[str, Any]]:
    return at(pipeline.lake.table(QualifiedName.parse(name)), order="id")


def at(path: str, order: str = "1") -> list[dict[str, Any]]:
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    read: list[dict[str, Any]] = pa.table(found.execute(f"SELECT * FROM t ORDER BY {order}").read_all()).to_pylist()
    return read


def followed(pipeline: Pipeline) -> list[str]:
    return list(map(str, all_followed_names(pipeline)))


def published(database: Database) -> list[str]:
    with database.connect() as connection:
        found = find_publication(connection, database.name)
    assert found is not None
    return list(map(str, found.tables))


@contextmanager
def owner_of(database: Database, table: str) -> Iterator[str]:
    """The dsn of a role that owns this table, and reads the others."""
    role = f"owner_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'pw'",
        f"GRANT pg_read_all_data TO {role}",
        f"GRANT CREATE ON DATABASE {database.name} TO {role}",
        f"ALTER TABLE {table} OWNER TO {role}",
    )
    try:
        yield database.server.dsn(database.name, user=role, password="pw")
    finally:
        database.execute(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_which_tables_match(database: Database, make: Make) -> None:
    database.execute('CREATE SCHEMA "Weird.Name"')
    create(database, "orders", "audit_log", "audit_rows", '"Weird.Name"."Tab*le"', '"Weird.Name".other')
    database.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)")
    database.execute("CREATE VIEW seen AS SELECT * FROM orders")
    pipeline = make("public.*", '"Weird.Name"."Tab*le"', exclude=["public.audit_*"], defaults={"mode": "history"})
    assert followed(pipeline) == ["public.orders", "public.parts", '"Weird.Name"."Tab*le"']
    prepare(pipeline)
    assert published(database) == ['"Weird.Name"."Tab*le"', "public.orders", "public.parts"]
    assert [table.mode for table in resolved(pipeline).tables or ()] == ["history"] * 3
    assert followed(make('*."Tab"?"le"')) == ['"Weird.Name"."Tab*le"']
    assert followed(make("*.*", exclude=["public.*", "audit_log"])) == ['"Weird.Name"."Tab*le"', '"Weird.Name".other']


def test_the_last_entry_that_names_a_field_decides(database: Database, make: Make) -> None:
    create(database, "orders", "items")
    pipeline = make(
        {"name": "public.orders", "mode": "append", "key": ["id"]},
        {"name": "public.*", "mode": "soft_delete"},
        {"name": "public.items", "columns": {"include": ["id"]}},
        {"name": "*.items", "columns": None, "key": ["id"]},
        defaults={"mode": "history", "types": {"note": "variant"}},
    )
    orders, items = resolved(pipeline).tables or ()
    assert (orders.mode, orders.key, orders.columns) == ("soft_delete", ("id",), None)
    assert (items.mode, items.key, items.columns) == ("soft_delete", ("id",), None)
    assert orders.options.types == items.options.types != resolved(make("public.*")).table(items.name).options.types


def test_tables_come_and_go(database: Database, make: Make) -> None:
    create(database, "orders", "old_in", "other")
    database.execute("CREATE SCHEMA away")
    pipeline = make("public.o*", exclude=["public.other"])
    synced_without_spark(pipeline)

    create(database, "offers")  # a new one that matches
    database.execute("INSERT INTO offers VALUES (2, 'two')")
    report = synced_without_spark(pipeline)
    assert [str(taken.name) for taken in report.snapshots] == ["public.offers"]
    database.execute("INSERT INTO offers VALUES (3, 'three')")
    assert synced_without_spark(pipeline).snapshots == ()
    assert [row["id"] for row in rows(pipeline, "offers")] == [1, 2, 3]

    database.execute("DROP TABLE orders")
    database.execute("ALTER TABLE old_in RENAME TO left_out")  # out of the pattern
    database.execute("ALTER TABLE other RENAME TO once_other")  # and into it
    report = synced_without_spark(pipeline)
    assert [str(taken.name) for taken in report.snapshots] == ["public.once_other"]
    assert followed(pipeline) == ["public.offers", "public.once_other"] == published(database)
    assert len(rows(pipeline, "orders")) == len(rows(pipeline, "old_in")) == 1  # what is in the lake stays
    assert all(table.verdict == "equal" for table in verify(pipeline, no_spark).tables)

    database.execute("DROP TABLE offers, once_other")
    assert synced_without_spark(pipeline).tables == ()
    assert pipeline_status(pipeline).tables == ()


def test_a_publication_of_the_users_own(database: Database, make: Make) -> None:
    create(database, "orders", "items", "audit_log")
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE orders, audit_log")
    pipeline = make("public.*", exclude=["*.audit_*"])
    synced_without_spark(pipeline)
    assert followed(pipeline) == ["public.orders"]
    database.execute(f"ALTER PUBLICATION {database.name} ADD TABLE items")
    synced_without_spark(pipeline)
    assert followed(pipeline) == ["public.items", "public.orders"]
    assert published(database) == ["public.audit_log", "public.items", "public.orders"]  # never altered


@pytest.mark.parametrize("tables", [(), ("*.*",)])
def test_a_publication_for_all_tables(database: Database, make: Make, tables: tuple[str, ...]) -> None:
    create(database, "orders", "audit_log")
    database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
    pipeline = make(*tables, exclude=["public.audit_*"], defaults={"mode": "append"})
    prepare(pipeline)
    create(database, "items")
    assert list(map(str, prepare(pipeline).missing)) == ["public.items", "public.orders"]
    assert all(table.mode == "append" for table in resolved(pipeline).tables or ())


def test_test_decoding_needs_no_publication(database: Database, make: Make) -> None:
    create(database, "orders", "audit_log")
    pipeline = make("public.*", exclude=["public.audit_*"], source={"plugin": "test_decoding"})
    synced_without_spark(pipeline)
    create(database, "items")
    assert [str(taken.name) for taken in synced_without_spark(pipeline).snapshots] == ["public.items"]
    database.execute("INSERT INTO items VALUES (2, '')")
    assert synced_without_spark(pipeline).snapshots == ()
    assert len(rows(pipeline, "items")) == 2


def test_a_table_that_cannot_be_followed_stops_alone(database: Database, make: Make) -> None:
    create(database, "orders")
    with owner_of(database, "orders") as dsn:
        pipeline = make("public.*", dsn=dsn)
        database.execute("CREATE TABLE foreign_one (id int PRIMARY KEY)")
        database.execute("CREATE TABLE no_key (id int)")
        report = sync(pipeline, no_spark)
        assert [str(taken.name) for taken in report.snapshots] == ["public.orders"]
        said = {str(table.name): table.error.what for table in report.stopped}
        assert said.keys() == {"public.foreign_one", "public.no_key"}
        assert "does not own it" in said["public.foreign_one"]
        synced_without_spark(make("public.*", dsn=dsn, exclude=["*.foreign_one", "*.no_key"]))


@pytest.mark.parametrize(
    "option",
    [
        {"columns": {"exclude": ["amount"]}},
        {"columns": {"include": ["id", "amount"]}},
        {"types": {"amount": "decimal(38,10)"}},
        {"on_unrepresentable": {"amount": "clamp"}},
        {"mask": {"amount": "sha256"}},
    ],
)
def test_a_table_without_a_column_that_the_pattern_names_stops_alone(
    database: Database, make: Make, option: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SALT_VARIABLE, "salt")
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, amount numeric)", "CREATE TABLE items (id int PRIMARY KEY)"
    )
    prepared = prepare(make({"name": "public.*", **option}))
    assert list(map(str, prepared.tables)) == ["public.orders"] == published(database)
    (stopped,) = prepared.stopped
    assert "amount" in stopped.error.what


def test_who_knows_fewer_tables_takes_none_out_of_the_publication(database: Database, make: Make) -> None:
    """Dagster's definitions hold the tables of the time when they were asked for; the command may have added others."""
    create(database, "orders")
    definitions = resolved(make("public.*"))
    create(database, "items")
    synced_without_spark(make("public.*"))
    prepared = prepare(definitions)
    assert published(database) == ["public.items", "public.orders"] == sorted(map(str, prepared.tables))
    database.execute("INSERT INTO orders VALUES (2, '')")
    capture(definitions)
    done = apply(Run(definitions, no_spark))
    assert [str(table.name) for table in done.tables] == ["public.orders"]
    assert done.cut is not None  # of the tables that it knows


def test_what_matches_nothing(database: Database, make: Make) -> None:
    with pytest.raises(PreconditionError, match=r"^the source has no table that matches tables: shop\.\*, public\.x"):
        sync(make("shop.*", "public.x?"), no_spark)
    create(database, "orders")
    pipeline = make("public.*", "shop.*")
    synced_without_spark(pipeline)
    warned = [check for check in diagnose(pipeline).checks if check.found == "matches no table"]
    assert [(check.what, check.verdict) for check in warned] == [("shop.*", Verdict.WARN)]


def test_the_lake_is_known_without_the_source(database: Database, make: Make) -> None:
    create(database, "orders", "items", "audit_log")
    pipeline = make("public.*")
    synced_without_spark(pipeline)
    away = make("public.*", exclude=["*.audit_*"], dsn="host=127.0.0.1 port=1 connect_timeout=2")
    assert followed(away) == ["public.items", "public.orders"]
    status = pipeline_status(away)
    assert [str(table.name) for table in status.tables] == ["public.items", "public.orders"]
    assert isinstance(status.source_error, SourceUnreachableError)
    with pytest.raises(SourceUnreachableError):
        all_followed_names(make("nothing.*", dsn="host=127.0.0.1 port=1 connect_timeout=2"))


def test_a_tables_commands_work_with_patterns(database: Database, make: Make) -> None:
    create(database, "orders")
    pipeline = make("public.*")
    prepare(pipeline)
    (taken,) = snapshot(Run(pipeline, no_spark))
    assert (str(taken.name), taken.error) == ("public.orders", None)
    database.execute("INSERT INTO orders VALUES (2, '')")
    assert len(capture(pipeline).landed) == 1
    synced_without_spark(pipeline)
    assert [str(table.name) for table in maintain(pipeline, no_spark).tables] == ["public.orders"]


class TestMasks:
    """What is to be masked is never landed as it is, whenever its table came."""

    @pytest.fixture(autouse=True)
    def _salt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(SALT_VARIABLE, "salt")

    def test_a_table_that_comes_later_is_masked(self, database: Database, make: Make) -> None:
        create(database, "orders")
        database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
        pipeline = make("public.*", defaults={"mask": {"note": "sha256"}})
        synced_without_spark(pipeline)
        create(database, "items")  # published at once: the slot sends it before any snapshot
        capture(pipeline)
        synced_without_spark(pipeline)
        assert {row["note"] for row in [*rows(pipeline, "items"), *rows(pipeline, "orders")]} == {
            rows(pipeline, "orders")[0]["note"]
        }
        assert "secret" not in str(changes(pipeline))

    def test_a_table_that_comes_while_the_slot_is_read_is_masked(self, database: Database, make: Make) -> None:
        create(database, "orders")
        database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
        pipeline = make("public.*", defaults={"mask": {"note": "sha256"}})
        synced_without_spark(pipeline)
        with capture_session(pipeline) as session:
            create(database, "items")
            last = session.checkpoint
            window = Window(last.window.hi, flushed_lsn(session.control))
            marker = land_window(session, window)
        assert marker.changes == 1
        assert "secret" not in str(changes(pipeline))

    def test_a_table_without_the_column_stops_alone(self, database: Database, make: Make) -> None:
        create(database, "orders")
        pipeline = make({"name": "public.*", "mask": {"note": "sha256"}})
        synced_without_spark(pipeline)
        create(database, "items", columns="id int PRIMARY KEY, notes text")
        report = sync(pipeline, no_spark)
        (stopped,) = report.stopped
        assert "public.items has no column note" in stopped.error.what
        assert published(database) == ["public.orders"]
        assert "secret" not in str(changes(pipeline))

    def test_rows_that_cannot_be_masked_are_not_read(self, database: Database, make: Make) -> None:
        create(database, "orders")
        database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
        pipeline = make("public.*", defaults={"mask": {"note": "sha256"}})
        synced_without_spark(pipeline)
        create(database, "items", columns="id int PRIMARY KEY, notes text")
        with pytest.raises(DecodeError, match=r"public\.items is not read"):
            capture(pipeline)
        assert "secret" not in str(changes(pipeline))

    def test_without_a_salt_it_is_refused(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(SALT_VARIABLE)
        with pytest.raises(ConfigurationError, match=rf"mask of public\.\*: the environment variable {SALT_VARIABLE}"):
            make({"name": "public.*", "mask": {"note": "sha256"}})


def changes(pipeline: Pipeline) -> list[Any]:
    return at(pipeline.lake.change_log)
