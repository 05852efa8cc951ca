"""The end of a pipeline: what it made goes, by name, and nothing else; stopped at any step, it is finished by the next
call. No Spark."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import write_deltalake
from psycopg.conninfo import make_conninfo
from pyarrow import Table as Rows
from pyarrow import fs
from pydantic import SecretStr

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.delta import whole_files
from spark_jobs.doctor.log_check import change_log_check
from spark_jobs.drop.drop import drop, plan_drop
from spark_jobs.errors import BreakError, CdcError, LakeError, SlotError, SlotInUseError, SourceError
from spark_jobs.lake.drop_mark import MARK_NAME
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.locks import cuts_lock, slot_lock, table_lock
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.cli.command import Command, configured
from tests.documented_grants import TABLES, documented_role, documented_tables
from tests.fixtures.no_spark import no_spark
from tests.fixtures.object_store import BUCKET, ObjectStore
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database
from tests.fixtures.standbys import base_backup, copy_started, wait_for_replay

pytestmark = [pytest.mark.postgres]

SLOTS = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
PUBLICATIONS = "SELECT pubname::text FROM pg_publication"
NAMES = ["public.orders", "public.items"]


def followed(pipeline: Pipeline, database: Database) -> Pipeline:
    """With all that a lake may hold: two tables, messages, cuts."""
    assert sync(pipeline, no_spark).errors == ()
    database.execute("UPDATE orders SET note = note || 'y'", "SELECT pg_logical_emit_message(true, 'app', 'said')")
    assert sync(pipeline, no_spark).errors == ()
    return pipeline


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Pipeline:
    return followed(pipeline_of(documented_tables(database), tmp_path / "lake", *NAMES, messages=True), database)


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_symlink() or not file.is_dir())


def at_source(database: Database) -> tuple[int, int]:
    return len(database.execute(SLOTS)), len(database.execute(PUBLICATIONS))


def test_the_command_from_beginning_to_end(database: Database, tmp_path: Path) -> None:
    command = configured(tmp_path, documented_tables(database).dsn, database.name, NAMES)
    lake, name = tmp_path / "lake", database.name
    assert command("sync").exit_code == 0
    before = files(lake)

    dropped = command("drop", "--yes", without_java=True)
    assert dropped.exit_code == 0, dropped.stderr
    assert [line.split()[:2] for line in dropped.stdout.splitlines()[1:3]] == [["slot", name], ["publication", name]]
    assert "WAL that is kept for it" in dropped.stdout
    assert f"kept: {lake}/tables with 2 tables, which no longer change" in dropped.stdout
    assert dropped.stderr.startswith("to be removed")
    assert at_source(database) == (0, 0)
    assert files(lake) == before

    again = command("drop", "--yes")
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout.startswith("there is nothing to remove: no slot, no publication of ours\n")

    # the lake that was kept says what it is
    lost = command("sync")
    assert lost.exit_code == 1
    assert lost.problem.startswith(f"slot {name} is gone, and the change log ends at")
    assert "postgres-cdc recover" in lost.hint
    assert "is gone" in command("status").stderr
    recover = f"`postgres-cdc recover --config {command.configuration}` begins"
    assert command("status", "--json").document["source_error"]["hint"].startswith(recover)
    checks = command("doctor", "--json").document["checks"]
    assert [check["remedy"].startswith(recover) for check in checks if "is gone" in check["found"]] == [True]
    assert "FILE" not in command("doctor").stdout
    assert at_source(database) == (0, 0)

    removed = command("drop", "--lake", "--yes", "--json").document
    assert {(each["kind"], each["name"]) for each in removed["removed"]} == {
        ("table", "public.items"),
        ("table", "public.orders"),
        ("cuts", f"{lake}/cuts"),
        ("change log", f"{lake}/change_log"),
    }
    assert all(each["bytes"] > 0 for each in removed["removed"])
    assert files(lake) == []
    again = command("drop", "--lake", "--yes")
    assert again.exit_code == 0
    assert f"there is nothing to remove: no slot, no publication of ours, and nothing of this pipeline in {lake}" in (
        again.stdout
    )
    assert command("status").exit_code == 0

    assert command("sync").exit_code == 0
    quiet = command("drop", "--lake", "--yes", "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert files(lake) == []
    assert command("sync").exit_code == 0, "it begins anew"
    assert at_source(database) == (1, 1)


def test_nobody_is_asked_where_nobody_is(database: Database, tmp_path: Path) -> None:
    command = configured(tmp_path, documented_tables(database).dsn, database.name, NAMES)
    prepared = command("capture", "--json")
    assert prepared.exit_code == 0, prepared.stderr
    for options, said in ((), "no terminal"), (("--json",), "--json does not ask"), (("--lake",), "no terminal"):
        refused = command("drop", *options)
        assert refused.exit_code == 2
        assert said in refused.problem
        assert refused.hint == "add --yes"
    assert at_source(database) == (1, 1)


@pytest.mark.parametrize(("typed", "exit_code", "left"), [("n\n", 1, (1, 1)), ("y\n", 0, (0, 0))])
def test_in_a_terminal_it_asks(
    shop: Pipeline, database: Database, tmp_path: Path, typed: str, exit_code: int, left: tuple[int, int]
) -> None:
    command = configured(tmp_path, database.dsn, database.name, NAMES)
    code, said = in_a_terminal(command, typed)
    assert said.index("to be removed") < said.index(database.name) < said.index("Remove all this?")
    assert (code, at_source(database)) == (exit_code, left), said
    assert ("nothing was removed" in said) == (exit_code == 1)


def in_a_terminal(command: Command, typed: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    arguments = [sys.executable, "-m", "cdc_assets.cli", "drop", "--config", str(command.configuration)]
    environment = {**os.environ, **command.environment, "TERM": "dumb", "COLUMNS": "200"}
    process = subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux reports the other end's closing so
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    return process.wait(60), said.decode()


def test_a_publication_of_the_users_own_is_left(database: Database, tmp_path: Path) -> None:
    documented_tables(database).execute(f"CREATE PUBLICATION {database.name} FOR TABLE orders, items")
    pipeline = followed(pipeline_of(database, tmp_path / "lake", *NAMES), database)
    report = drop(pipeline, lake=False)
    assert [(each.kind, each.name) for each in report.removed] == [("slot", database.name)]
    assert [(each.name, each.why) for each in report.left] == [(f"publication {database.name}", "it is your own")]
    assert (report.errors, at_source(database)) == ((), (0, 1))


def test_several_publications_and_a_plugin_without(database: Database, tmp_path: Path) -> None:
    documented_tables(database).execute("CREATE PUBLICATION a FOR TABLE orders", "CREATE PUBLICATION b FOR TABLE items")
    several = pipeline_of(database, tmp_path / "several", publication=("a", "b"))
    text = pipeline_of(
        database, tmp_path / "text", *NAMES, slot=f"{database.name}_t", plugin="test_decoding", publication="a"
    )
    for pipeline in (several, text):
        prepare_slot(pipeline)
    assert at_source(database) == (2, 2)
    assert len(drop(several, lake=True).left) == 2
    assert [each.kind for each in drop(text, lake=True).removed] == ["slot", "change log"]
    assert at_source(database) == (0, 2)


def test_a_publication_that_another_slot_is_read_with(shop: Pipeline, database: Database, tmp_path: Path) -> None:
    other = replace(shop, source=replace(shop.source, slot=f"{database.name}_2"), lake=Lake(str(tmp_path / "other")))
    prepare_slot(other)
    report = drop(shop, lake=False)
    assert [each.kind for each in report.removed] == ["slot"]
    assert [each.why for each in report.left] == [f"slot {database.name}_2 is read with it too"]
    [(comment,)] = database.execute("SELECT obj_description(oid, 'pg_publication') FROM pg_publication")
    assert f"slot {database.name} " not in str(comment)
    prepare_slot(other)
    assert [each.kind for each in drop(other, lake=False).removed] == ["slot", "publication"]
    assert at_source(database) == (0, 0)


def refused(pipeline: Pipeline, database: Database, kind: type[CdcError], said: str, *, lake: bool = True) -> str:
    """The hint; nothing has changed."""
    folder = Path(pipeline.lake.path)
    before = (database.execute(SLOTS), database.execute(PUBLICATIONS), files(folder))
    for work in plan_drop, drop:
        with pytest.raises(kind, match=f"^nothing was removed: .*{said}") as error:
            work(pipeline, lake=lake)
    assert (database.execute(SLOTS), database.execute(PUBLICATIONS), files(folder)) == before
    return error.value.hint


def test_the_slot_of_another_lake(shop: Pipeline, database: Database, tmp_path: Path) -> None:
    second = replace(shop, lake=Lake(str(tmp_path / "second")))
    hint = refused(second, database, SlotError, rf"slot {database.name} is read for another lake than .*second")
    # where the first lake is gone for good, the hint leads out
    shutil.rmtree(shop.lake.path)
    assert "source.adopt_slot: true" in hint
    adopting = replace(second, source=replace(second.source, adopt_slot=True))
    plan = plan_drop(adopting, lake=True)
    assert plan.removals[0].note == "lake.path has no change log that was read from it"
    drop(adopting, lake=True)
    assert at_source(database) == (0, 0)


def test_a_slot_of_which_nothing_tells_whose_it_is(database: Database, tmp_path: Path) -> None:
    """The lake was deleted by hand, and the publication is the user's own."""
    documented_tables(database).execute(f"CREATE PUBLICATION {database.name} FOR TABLE orders, items")
    pipeline = pipeline_of(database, tmp_path / "lake", *NAMES)
    prepare_slot(pipeline)
    shutil.rmtree(tmp_path / "lake")
    (slot,) = plan_drop(pipeline, lake=True).removals
    assert slot.note
    assert drop(pipeline, lake=True).removed
    assert at_source(database) == (0, 1)


def test_a_slot_that_somebody_reads(shop: Pipeline, database: Database) -> None:
    reader = psycopg.pq.PGconn.connect(make_conninfo(database.dsn, replication="database").encode())
    options = f"proto_version '1', publication_names '{database.name}'"
    reader.exec_(f"START_REPLICATION SLOT {database.name} LOGICAL 0/0 ({options})".encode())
    try:
        pid = reader.backend_pid
        assert "stop that reader" in refused(shop, database, SlotInUseError, f"is being read by server process {pid}:")
    finally:
        reader.finish()


Lock = Callable[[Connection, str], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("lock", "kind", "said"),
    [
        (slot_lock, SlotInUseError, "another process is capturing"),
        (cuts_lock, LakeError, "another process is writing the cuts"),
        (lambda c, slot: table_lock(c, slot, QualifiedName("public", "items")), LakeError, "public.items was left"),
    ],
    ids=["slot", "cuts", "table"],
)
def test_while_another_command_is_at_work(
    shop: Pipeline, database: Database, monkeypatch: pytest.MonkeyPatch, lock: Lock, kind: type[CdcError], said: str
) -> None:
    monkeypatch.setattr("spark_jobs.postgres.locks._WAIT_SECONDS", 1)
    with connected(shop.source.dsn) as connection, lock(connection, database.name):
        refused(shop, database, kind, said)
        refused(shop, database, kind, said, lake=False)
    assert drop(shop, lake=True).removed


def test_a_slot_that_is_not_this_pipelines(shop: Pipeline, database: Database, tmp_path: Path) -> None:
    names = [f"{database.name}_{kind}" for kind in ("physical", "text", "elsewhere")]
    database.execute(
        f"SELECT pg_create_physical_replication_slot('{names[0]}')",
        f"SELECT pg_create_logical_replication_slot('{names[1]}', 'test_decoding')",
    )
    with fresh_database(database.server) as other:
        other.execute(f"SELECT pg_create_logical_replication_slot('{names[2]}', 'pgoutput')")
        said = ("is a physical slot", "uses the output plugin test_decoding", f"belongs to database {other.name}")
        for name, why in zip(names, said, strict=True):
            mistaken = replace(shop, source=replace(shop.source, slot=name), lake=Lake(str(tmp_path / "new")))
            assert "source.slot" in refused(mistaken, database, SlotError, f"slot {name} {why}")
            # the log of this lake was read from another slot than the configuration names
            refused(
                replace(shop, source=replace(shop.source, slot=name)), database, SlotError, "is of another slot: it"
            )
    database.execute(f"SELECT pg_drop_replication_slot('{names[0]}')")


def test_the_hint_leads_out_where_the_log_is_of_another_slot(shop: Pipeline, database: Database) -> None:
    renamed = replace(shop, source=replace(shop.source, slot=f"{database.name}_2"))
    hint = refused(renamed, database, SlotError, f"is of another slot: it has {database.name}, now it is .*_2")
    assert "`postgres-cdc recover --config FILE` first" in hint
    assert recover(renamed, no_spark).errors == ()
    assert [each.kind for each in drop(renamed, lake=True).removed][:1] == ["slot"]
    assert (files(Path(shop.lake.path)), database.execute(SLOTS)) == ([], [(database.name,)])
    assert [each.kind for each in drop(replace(shop, source=replace(shop.source, adopt_slot=True)), lake=True).removed]
    assert at_source(database) == (0, 0)


def test_a_server_that_is_another_cluster(shop: Pipeline, database: Database, postgres_17: Any) -> None:
    """One that has a slot and a publication of the same names, of another pipeline."""
    with fresh_database(postgres_17, database.name) as elsewhere:
        documented_tables(elsewhere)
        prepare_slot(pipeline_of(elsewhere, Path(shop.lake.path).parent / "elsewhere", *NAMES))
        moved = replace(shop, source=replace(shop.source, dsn=SecretStr(elsewhere.dsn)))
        hint = refused(moved, elsewhere, SlotError, r"is of another cluster \(system identifier\): it has \d+, now it")
        assert "point the configuration back" in hint


def test_a_server_that_cannot_be_reached(shop: Pipeline, database: Database) -> None:
    unreachable = replace(shop, source=replace(shop.source, dsn=SecretStr("host=127.0.0.1 port=1 dbname=none")))
    assert "check host, port" in refused(unreachable, database, SourceError, "cannot connect to PostgreSQL")


def test_a_standby(postgres_18: Any, shop: Pipeline, database: Database, tmp_path: Path) -> None:
    with base_backup(postgres_18, standby=True) as folder, copy_started(postgres_18, folder) as standby:
        wait_for_replay(postgres_18, standby)
        there = replace(database, server=standby)
        on_standby = replace(shop, source=replace(shop.source, dsn=SecretStr(there.dsn)))
        hint = refused(on_standby, there, SlotError, f"the server is a standby, and has no slot {database.name} of its")
        assert "name the primary" in hint
        # a slot of the standby's own goes, and its publication is the primary's
        with database.connect() as primary:
            creating = subprocess.Popen(
                [sys.executable, "-c", CREATE, there.dsn, database.name], stdout=subprocess.DEVNULL
            )
            while creating.poll() is None:
                primary.execute("SELECT pg_log_standby_snapshot()")
        report = drop(on_standby, lake=False)
        assert [each.kind for each in report.removed] == ["slot"]
        (error,) = report.errors
        assert error.hint == f"on its primary: DROP PUBLICATION {database.name}"
        assert (at_source(there), at_source(database)) == ((0, 1), (1, 1))


CREATE = """
import sys, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as standby:
    standby.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [sys.argv[2]])
"""


def test_the_least_privileges(every_database: Database, tmp_path: Path) -> None:
    """Those of the quick start are enough for the slot; a publication of ours needs its owner."""
    with documented_role(documented_tables(every_database), "pw") as dsn:
        pipeline = pipeline_of(every_database, tmp_path / "lake", *TABLES, dsn=dsn)
        assert sync(pipeline, no_spark).errors == ()
        assert drop(pipeline, lake=True).errors == ()
        assert (at_source(every_database), files(tmp_path / "lake")) == ((0, 1), [])

        every_database.execute(f"DROP PUBLICATION {every_database.name}")
        prepare_slot(replace(pipeline, source=replace(pipeline.source, dsn=SecretStr(every_database.dsn))))
        report = drop(pipeline, lake=True)
        assert [each.kind for each in report.removed] == ["slot", "change log"]
        (error,) = report.errors
        assert error.what == f"publication {every_database.name} was left: the role does not own it"
        owner, _, statement = error.hint.partition(": ")
        assert owner == "as postgres"
        every_database.execute(statement)
        assert drop(pipeline, lake=True).errors == ()


def test_a_lost_slot_goes_too(shop: Pipeline, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            lost = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}' AND wal_status = 'lost'"
            while not connection.execute(lost).fetchall():
                connection.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")
        finally:
            connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            connection.execute("SELECT pg_reload_conf()")
    assert plan_drop(shop, lake=False).removals[0].bytes is None
    drop(shop, lake=False)
    assert at_source(database) == (0, 0)


class KilledError(Exception):
    pass


def killed_at(step: int) -> Callable[[Step], None]:
    def progress(at: Step) -> None:
        if at.done == step:
            raise KilledError

    return progress


def test_stopped_before_each_step(database: Database, tmp_path: Path) -> None:
    """What is left then is what sync, status, doctor and recover say, and what the next drop finishes."""
    whole = pipeline_of(documented_tables(database), tmp_path / "lake", *NAMES, messages=True)
    steps: list[Step] = []
    drop(followed(whole, database), lake=True, progress=lambda step: steps.append(step))
    names = [step.detail for step in steps]
    assert names[:3] == [f"slot {database.name}", f"publication {database.name}", "the mark"]
    assert names[-3:] == [whole.lake.change_log, "empty folders", "the mark"]
    assert len(names) == 10
    for number in range(1, len(names)):
        pipeline = replace(whole, lake=Lake(str(tmp_path / f"lake{number}")))
        followed(pipeline, database)
        with pytest.raises(KilledError):
            drop(pipeline, lake=True, progress=killed_at(number))
        says_what_it_is(pipeline, half=number > names.index("the mark"))
        drop(pipeline, lake=True)
        assert (at_source(database), files(Path(pipeline.lake.path))) == ((0, 0), [])
        assert [check.verdict.name for check in change_log_check(pipeline)] == ["OK", "OK"]


def says_what_it_is(pipeline: Pipeline, *, half: bool) -> None:
    kept = r"slot .* is gone, and the change log ends at"
    with pytest.raises((BreakError, LakeError), match=f"{kept}|half removed"):
        sync(pipeline, no_spark)
    *_, check = change_log_check(pipeline)
    assert check.verdict.name == "FAIL"
    if not half:
        return
    assert Path(pipeline.lake.path, MARK_NAME).exists()
    with pytest.raises(LakeError, match="is half removed") as refused:
        recover(pipeline, no_spark)
    assert "`postgres-cdc drop --lake` removes the rest" in refused.value.hint
    with pytest.raises(LakeError, match=r"nothing was removed: the lake at .* is half removed"):
        drop(pipeline, lake=False)
    if Path(pipeline.lake.change_log).exists():
        assert pipeline_status(pipeline).errors
    else:
        with pytest.raises(LakeError, match="is half removed"):
            pipeline_status(pipeline)


def test_killed_among_the_files(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of them, in any order: what remains of a table no longer shows whose it was."""
    pipeline = followed(pipeline_of(documented_tables(database), tmp_path / "lake", *NAMES, messages=True), database)
    kept = tmp_path / "kept"
    shutil.copytree(pipeline.lake.path, kept)
    drop(pipeline, lake=False)
    total, delete = len(files(kept)), whole_files.delete_files
    for count in range(0, total, 3):
        shutil.rmtree(pipeline.lake.path)
        shutil.copytree(kept, pipeline.lake.path)
        with monkeypatch.context() as patched:
            patched.setattr("spark_jobs.drop.lake_side.delete_files", stopping_after(count, delete))
            with pytest.raises(KilledError):
                drop(pipeline, lake=True)
        left = files(Path(pipeline.lake.path))
        assert len(left) == total - count + 1, "and the mark"
        with pytest.raises((BreakError, LakeError), match=r"is gone, and the change log ends at|half removed"):
            sync(pipeline, no_spark)
        assert files(Path(pipeline.lake.path)) == left
        drop(pipeline, lake=True)
        assert files(Path(pipeline.lake.path)) == []
    assert at_source(database) == (0, 0)


def stopping_after(count: int, delete: Callable[..., None]) -> Callable[..., None]:
    """The log of each table before its data, which is the worst order."""
    left = [count]

    def some(path: str, names: list[str]) -> None:
        for name in sorted(names):
            if left[0] == 0:
                raise KilledError
            left[0] -= 1
            delete(path, [name])

    return some


def test_a_mark_that_was_cut_off(shop: Pipeline) -> None:
    Path(shop.lake.path, MARK_NAME).write_text('{"owner": {"sys')
    drop(shop, lake=True)
    assert files(Path(shop.lake.path)) == []


FOREIGN = (
    "README.txt",
    "reports/2026.parquet",
    "change_log/notes.txt",
    "tables/public/orders/export.parquet",
    "tables/public/orders/by_hand/file.bin",
    "tables/public/notes.csv",
    "tables/stray",
    "tables/public/plain/data.parquet",
    "_staging/public/orders/keep/me.parquet",
)
OURS = (
    "_staging/public/orders/3-0123456789abcdef/part-00000.parquet",
    "tables/public/begun/snapshot-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.zstd.parquet",
    ".postgres-cdc-doctor-abc123",
)


def planted(lake: Path) -> list[str]:
    """Files of others in a lake, and their names; a Delta table of somebody else's among ours, and a link."""
    for name in (*FOREIGN, *OURS):
        (lake / name).parent.mkdir(parents=True, exist_ok=True)
        (lake / name).write_text("x")
    write_deltalake(str(lake / "tables" / "public" / "theirs"), Rows.from_pydict({"n": [1]}))
    elsewhere = lake.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.parquet").write_text("x")
    (lake / "tables" / "public" / "items" / "link").symlink_to(elsewhere)
    return sorted([*FOREIGN, "tables/public/items/link", *(f for f in files(lake) if "/theirs/" in f)])


def test_what_others_have_put_there_stays_and_is_named(shop: Pipeline, database: Database, tmp_path: Path) -> None:
    lake = Path(shop.lake.path)
    foreign = planted(lake)
    plan = plan_drop(shop, lake=True)
    report = drop(shop, lake=True)
    assert report.removed == plan.removals
    assert files(lake) == foreign
    assert len(files(tmp_path / "elsewhere")) == 1
    named = {each.name.removeprefix(f"{lake}/") for each in report.left}
    assert named == {
        *(name for name in FOREIGN if not name.startswith("reports/")),
        "reports/",
        "tables/public/items/link",
        "tables/public/theirs/",
    }
    again = drop(shop, lake=True)
    assert again.removed == ()
    assert {each.name for each in again.left} >= {f"{lake}/README.txt", f"{lake}/tables/public/theirs/"}
    assert files(lake) == foreign
    assert at_source(database) == (0, 0)


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_lake_that_is_named_by_a_uri(database: Database, tmp_path: Path, scheme: str) -> None:
    pipeline = pipeline_of(documented_tables(database), tmp_path / "lake", *NAMES)
    followed(replace(pipeline, lake=Lake(f"{scheme}{tmp_path}/lake")), database)
    assert len(drop(replace(pipeline, lake=Lake(f"{scheme}{tmp_path}/lake")), lake=True).removed) == 6
    assert (at_source(database), files(tmp_path / "lake")) == ((0, 0), [])


def test_on_an_object_store(database: Database, object_store: ObjectStore) -> None:
    pipeline = pipeline_of(documented_tables(database), Path("unused"), *NAMES)
    place = f"{BUCKET}/{database.name}"  # other tests use the same bucket
    pipeline = replace(pipeline, lake=Lake(f"s3a://{place}/shop"))
    followed(pipeline, database)
    store = object_store.filesystem()
    for name in ("other/file", "shop/notes.txt", "shop/tables/public/orders/mine.csv"):
        with store.open_output_stream(f"{place}/{name}") as stream:
            stream.write(b"x")
    with pytest.raises(KilledError):
        drop(pipeline, lake=True, progress=killed_at(5))
    report = drop(pipeline, lake=True)
    found = store.get_file_info(fs.FileSelector(place, recursive=True))
    left = {info.path.removeprefix(f"{place}/") for info in found if info.type == fs.FileType.File}
    assert left == {"other/file", "shop/notes.txt", "shop/tables/public/orders/mine.csv"}
    assert {each.name for each in report.left} >= {f"s3a://{place}/shop/notes.txt"}
    assert not any(info.path.startswith(f"{place}/shop/change_log") for info in found), "no empty folder either"
    assert sync(pipeline, no_spark).errors == (), "it begins anew"
    assert drop(pipeline, lake=True).removed


def test_what_else_the_documentation_says_of_a_pipelines_life(
    shop: Pipeline, database: Database, tmp_path: Path
) -> None:
    """One table removed and listed again, the pipeline renamed, its lake moved."""
    published = "SELECT tablename::text FROM pg_publication_tables ORDER BY 1"
    alone = replace(shop, tables=(shop.table(QualifiedName("public", "orders")),))
    assert sync(alone, no_spark).errors == ()
    assert database.execute(published) == [("orders",)]
    assert Path(shop.lake.path, "tables/public/items/_delta_log").is_dir()
    report = sync(shop, no_spark)
    assert ([str(taken.name) for taken in report.snapshots], report.errors) == (["public.items"], ())

    shutil.move(shop.lake.path, tmp_path / "moved")
    renamed = replace(shop, name="renamed", lake=Lake(str(tmp_path / "moved")))
    database.execute("UPDATE items SET note = 'z'")
    report = sync(renamed, no_spark)
    assert (report.snapshots, report.errors) == ((), ())
    assert sum(table.changes.updates for table in report.tables) == 50

    # a table that is no longer followed is still ours, and goes with the lake
    assert sync(replace(renamed, tables=alone.tables), no_spark).errors == ()
    names = [each.name for each in drop(replace(renamed, tables=alone.tables), lake=True).removed]
    assert {"public.orders", "public.items", "_messages"} <= set(names)
    assert files(tmp_path / "moved") == []
