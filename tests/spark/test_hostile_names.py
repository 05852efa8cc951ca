"""Names and values that mean something to SQL, YAML, Jinja, a shell, a path, a format string or a terminal mean nothing
here: they are followed like others, stay in the lake, and reach no terminal raw."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from psycopg import sql
from rich.console import Console

from cdc_assets import PostgresCdcComponent
from cdc_assets.cli.verify import display
from cdc_assets.discovered_tables import discover_tables, discovered_tables
from spark_jobs.errors import CONTROLS
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.cli.command import configured
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer
    from spark_jobs.postgres.connection import Connection

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

SQL, JINJA, PATH = "x'; DROP TABLE victim; --", "{{ env.PGPASSWORD }}{% raw %}", "../../etc"
TERMINAL = "\x1b[31mred\x9b2J\nnew line\x07\u202egnp"
NAMES = (
    QualifiedName("public", PATH),
    QualifiedName("public", "_delta_log"),
    QualifiedName("public", SQL),
    QualifiedName("public", TERMINAL),
    QualifiedName("_delta_log", ".."),
    QualifiedName("../{0.__class__}", f"a/b %2e%2e %s %(x)s ${{x}} [/red] {JINJA}"),
    QualifiedName('"$(id) `id`\\', "日" * 21),  # 63 bytes, the longest that there is
)
COLUMNS = (PATH, SQL, JINJA, TERMINAL, "%s", "{0.__class__}", "$(id) `id`")
VALUES = (*COLUMNS, "\u2028", "${x}", "\\x00 \\N \\.", "!!python/object/apply:os.system ['id']", "日" * 21, "")
PUBLICATION = "p'\"; DROP TABLE victim; -- %s {{ 7*7 }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake lies four folders down in it, so that ``../../..`` leads to another part of it."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def hostile(spark: SparkSession, server: PostgresServer, folder: Path) -> Iterator[Followed]:
    """All followed, with every kind of change. The tables are those of a publication: nobody has written their names
    into a file."""
    with fresh_database(server) as database:
        database.execute("CREATE TABLE victim (id int PRIMARY KEY)")
        with database.connect() as connection:
            for name in NAMES:
                _create(connection, name)
            tables = sql.SQL(", ").join(map(_table, NAMES))
            connection.execute(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(PUBLICATION), tables)
            )
        pipeline = pipeline_of(database, folder / "a/b/c/lake", publication=PUBLICATION, messages=True)
        followed = Followed(spark, database, pipeline, NAMES)
        (folder / "beside").write_text("what is there before")
        assert sync(pipeline, lambda: spark).errors == ()
        followed.assert_equal()
        with database.connect() as connection:
            for name in NAMES:
                _change(connection, name)
            connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", [SQL, TERMINAL])
        assert sync(pipeline, lambda: spark).errors == ()
        yield followed


def _table(name: QualifiedName) -> sql.Identifier:
    return sql.Identifier(name.nspname, name.relname)


def _create(connection: Connection, name: QualifiedName) -> None:
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(column)) for column in COLUMNS)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name.nspname)))
    connection.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, {})").format(_table(name), columns))
    _insert(connection, name, 0)


def _insert(connection: Connection, name: QualifiedName, first: int) -> None:
    """Each of the values, in all columns."""
    for number, value in enumerate(VALUES, first):
        row = sql.SQL(", ").join([sql.Literal(number), *(sql.Literal(value) for _ in COLUMNS)])
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(_table(name), row))


def _change(connection: Connection, name: QualifiedName) -> None:
    """Rows come, one column of them changes, one goes."""
    _insert(connection, name, 100)
    for number, (column, value) in enumerate(zip(COLUMNS, reversed(COLUMNS), strict=True)):
        update = sql.SQL("UPDATE {} SET {} = {} WHERE id = {}")
        changed = update.format(_table(name), sql.Identifier(column), sql.Literal(value), sql.Literal(number))
        connection.execute(changed)
    connection.execute(sql.SQL("DELETE FROM {} WHERE id = 8").format(_table(name)))


def test_rows_are_equal_and_no_statement_did_more(hostile: Followed) -> None:
    hostile.assert_equal()
    rows, _ = hostile.lake_rows(NAMES[0])
    assert len(rows) == 2 * len(VALUES) - 1
    assert hostile.database.execute("SELECT count(*) FROM victim") == [(0,)]
    messages = hostile.spark.read.format("delta").load(hostile.pipeline.lake.messages).collect()
    assert [(row["prefix"], bytes(row["content"]).decode()) for row in messages] == [(SQL, TERMINAL)]


def test_nothing_is_written_outside_the_lake(hostile: Followed, folder: Path) -> None:
    lake = Path(hostile.pipeline.lake.path)
    outside = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(lake)]
    assert outside == [folder / "beside"]
    assert {path.name for path in lake.iterdir()} <= {"tables", "change_log", "cuts", "_staging"}
    tables = {lake.joinpath("tables", *name.path.split("/")) for name in NAMES} | {lake / "tables" / "_messages"}
    assert {log.parent for log in lake.glob("tables/**/_delta_log")} == tables
    assert len(tables) == len(NAMES) + 1


def test_what_dagster_discovers_it_does_not_render(hostile: Followed, folder: Path, tmp_path: Path) -> None:
    discover_tables(hostile.pipeline, tmp_path / "state")
    names = discovered_tables("shop", tmp_path / "state")
    attributes = {"name": "shop", "source": {"dsn": hostile.database.dsn}, "lake": {"path": str(folder)}}
    component = PostgresCdcComponent.model_validate({**attributes, "tables": list(names)})
    assert {table.name for table in component.pipeline.tables or ()} == set(NAMES)
    assert component.definitions()


def test_no_terminal_gets_a_control_character(hostile: Followed, tmp_path: Path) -> None:
    """Of what is in order, and of tables that stop: one is renamed, another one loses its key."""
    source = {"dsn": "{{ env.POSTGRES_CDC_TEST_DSN }}", "publication": "{{ env.PUBLICATION }}", "messages": True}
    lake = {"path": hostile.pipeline.lake.path}
    name = hostile.database.name
    command = configured(tmp_path, hostile.database.dsn, name, [str(NAMES[0])], source=source, lake=lake)
    listed = yaml.safe_load(command.configuration.read_text())
    del listed["attributes"]["tables"]  # all of the publication
    command.configuration.write_text(yaml.safe_dump(listed))
    command = replace(command, environment={**command.environment, "PUBLICATION": PUBLICATION})

    plain, document = command("status", without_java=True), command("status", "--json", without_java=True)
    assert {table["name"] for table in document.document["tables"]} == {str(name) for name in NAMES}
    assert (plain.exit_code, document.exit_code) == (0, 0), plain.stderr
    with hostile.database.connect() as connection:
        renamed = sql.SQL("ALTER TABLE {} RENAME TO {}").format(_table(NAMES[3]), sql.Identifier("gone\x1b"))
        connection.execute(renamed)
        connection.execute(sql.SQL("ALTER TABLE {} DROP id").format(_table(NAMES[0])))
    stopped = [command(name, without_java=True) for name in ("status", "capture", "doctor")]
    assert stopped[0].exit_code == 1
    assert "etc" in stopped[0].stderr
    assert "gone" in stopped[0].stdout
    for answer in (plain, document, *stopped):
        assert not CONTROLS.search((answer.stdout + answer.stderr).replace("\n", ""))


def test_verify_says_what_differs_in_harmless_words(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    name = QualifiedName("public", f"[/red] {TERMINAL}")
    with database.connect() as connection:
        connection.execute(sql.SQL("CREATE TABLE {} (id text PRIMARY KEY)").format(_table(name)))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(_table(name), sql.Literal(TERMINAL)))
    pipeline = pipeline_of(database, tmp_path / "lake", str(name))
    assert sync(pipeline, lambda: spark).errors == ()
    spark.sql(f"DELETE FROM delta.`{pipeline.lake.table(name)}`")
    report = verify(pipeline, lambda: spark)
    console = Console(file=io.StringIO(), width=200)
    console.print(display(report))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "id=red 2J new line gnp" in shown
    assert "[/red]" in shown
    assert not CONTROLS.search("".join([*map(str, report.problems), *shown.split("\n")]))
