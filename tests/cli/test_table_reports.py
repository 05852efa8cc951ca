"""What was done to tables, in the lines that a terminal shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType

from cdc_assets.cli.doctor import _display as doctor_display
from cdc_assets.cli.json_output import json_value
from cdc_assets.cli.maintain import _display as maintain_display
from cdc_assets.cli.status import _display as status_display
from cdc_assets.cli.sync import _display as sync_display
from cdc_assets.cli.table_reports import modes_changed, snapshot_table
from cdc_assets.cli.verify import display as verify_display
from cdc_assets.demo.demo_report import DemoReport, changes_of, table_result
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.doctor.checks import Diagnosis, fail, ok
from spark_jobs.errors import LakeError, NeedsSnapshotError
from spark_jobs.lake.table_state import PartitionsRead
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.maintain.maintain import MaintainReport, TableMaintained
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.schema.differing_columns import DifferingColumns, NamedColumn
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.status import PipelineStatus, TableStatus
from spark_jobs.sync import SyncReport
from spark_jobs.verify.table_verified import RowCounts, TableVerified, VerifyReport
from spark_jobs.writers.table_upkeep import TableFiles
from spark_jobs.writers.with_spark.simpler_table import FeatureKept, TableSimplified

ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")
READ = PartitionsRead("partition public.orders_7 was attached", 1234, "0/1A2B3C")


def shown(display: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(display)
    return captured.get()


def test_a_change_of_mode_says_since_when_the_past_is_known() -> None:
    changed = ModeChanged(ORDERS, "mirror", "history", Lsn(0x19A2F08), windows=3)
    failed = ModeChanged(ITEMS, "mirror", "append", error=LakeError("no space"))
    marked = ModeChanged(ITEMS, "mirror", "mirror", commit_columns=("_commit_lsn", "_commit_time"))
    assert shown(modes_changed([changed, failed, marked]) or "").splitlines() == [
        "mode of public.orders: mirror to history, rebuilt from the change log, known since 0/19A2F08",
        "mode of public.items: stopped",
        "mode of public.items: mirror with _commit_lsn and _commit_time, rebuilt from its own rows",
    ]
    document = json_value(changed)
    assert isinstance(document, dict)
    assert (document["before"], document["mode"], document["known_since"]) == ("mirror", "history", "0/19A2F08")


def test_sync_says_why_and_how_many_rows() -> None:
    applied = TableApplied(ORDERS, 1, 2, Lsn(0), Lsn(9), "applied", partitions=READ)
    later = TableApplied(ORDERS, 3, 3, Lsn(9), Lsn(10), "nothing to apply")
    report = SyncReport((), (), (applied, later), None, 0, 0, 1.0)
    said = "public.orders: partition public.orders_7 was attached: only those rows were read again, 1,234 at 0/1A2B3C"
    assert said in shown(sync_display(report))


def test_maintain_says_which_features_are_dropped_and_why_others_stay() -> None:
    simplified = TableSimplified(("columnMapping",), (FeatureKept("timestampNtz", "a column needs it"),))
    tables = (
        TableMaintained(ORDERS, TableFiles(3, 1), simplified=simplified),
        TableMaintained(ITEMS, TableFiles(1, 1)),
    )
    said = shown(maintain_display(MaintainReport(0, Lsn(9), "", None, None, None, tables, (), 1.0)))
    assert [line.rstrip().split(maxsplit=2) for line in said.splitlines()[-2:]] == [
        ["public.orders", "columnMapping", "dropped"],
        ["public.orders", "timestampNtz", "kept: a column needs it"],
    ]


def test_status_says_it_until_the_next_snapshot() -> None:
    status = PipelineStatus("shop", "/lake", None, None, None, (TableStatus(ORDERS, partitions=READ),))
    said = "public.orders: partition public.orders_7 was attached: 1,234 rows read again at 0/1A2B3C"
    assert said in shown(status_display(status))


def test_status_names_columns_that_differ() -> None:
    table = TableStatus(ORDERS, differing=DifferingColumns((NamedColumn(4, "note"),), (NamedColumn(2, "old"),)))
    status = PipelineStatus("shop", "/lake", None, None, None, (table,))
    said = "public.orders: note was added and is ignored; old was dropped and is kept"
    assert f"columns that differ from the source's, by on_schema_change:\n{said}" in shown(status_display(status))


def test_a_snapshot_says_which_kept_columns_it_cost() -> None:
    taken = [TableSnapshot(ORDERS, Lsn(1), lost=("old", "older"))]
    assert "snapshot taken, without old, older" in shown(snapshot_table(taken, everything=False))


def test_thousands_that_are_well_are_counted_and_the_others_listed() -> None:
    names = [QualifiedName("public", f"t{number}") for number in range(3000)]
    checks = [ok("source", "wal_level", "logical"), *(ok("tables", str(name), "key (id)") for name in names)]
    diagnosis = Diagnosis("shop", (*checks, fail("tables", "public.bad", "no SELECT", "GRANT SELECT")))
    lines = shown(doctor_display(diagnosis)).splitlines()
    assert len(lines) < 10
    assert any("3,000 checks" in line for line in lines)
    assert any("wal_level" in line for line in lines), "a few are listed"
    assert any("public.bad" in line and "GRANT SELECT" in line for line in lines)
    some = Diagnosis("shop", tuple(checks[:300]))
    assert len(shown(doctor_display(some, everything=True)).splitlines()) > 300

    tables = [TableStatus(name, Lsn(1), Lsn(2), 0, 0, 0, 5) for name in names]
    tables += [TableStatus(ORDERS, error=LakeError("gone")), TableStatus(ITEMS)]
    status = PipelineStatus("shop", "/lake", None, None, None, tuple(tables))
    text = shown(status_display(status))
    assert len(text.splitlines()) < 15
    assert "3,000 tables are up to the log" in text
    assert "public.orders" in text
    assert "public.items" in text
    some_tables = replace(status, tables=tuple(tables[:300]))
    assert len(shown(status_display(some_tables, everything=True)).splitlines()) > 300
    few = PipelineStatus("shop", "/lake", None, None, None, tuple(tables[:3]))
    assert "public.t2" in shown(status_display(few))


def test_the_reports_of_thousands_of_tables_are_a_few_lines() -> None:
    names = [QualifiedName("public", f"t{number}") for number in range(3000)]
    idle = [TableApplied(name, 1, 1, Lsn(0), Lsn(9), "nothing to apply") for name in names]
    changed = TableApplied(ORDERS, 1, 1, Lsn(0), Lsn(9), "applied")
    taken = [TableSnapshot(name, Lsn(9), rows=2) for name in names]
    again = TableSnapshot(ITEMS, Lsn(9), rows=7, reason="it was rewritten by DDL")
    report = SyncReport((*taken, again), (), (*idle, changed), None, 0, 0, 1.0)
    verified = VerifyReport((*(TableVerified(name, Lsn(9), "equal", 3, RowCounts(2, 2)) for name in names),), 3.0)
    text = shown(sync_display(report))
    assert len(text.splitlines()) < 15
    assert "3,000 snapshots were taken, of 6,000 rows" in text
    assert "3,000 tables had nothing to apply" in text
    assert all(listed in text for listed in ("public.items", "it was rewritten by DDL", "public.orders"))
    assert shown(verify_display(verified)).splitlines()[0].startswith("3,000 tables of 6,000 rows are equal")
    some = replace(report, snapshots=report.snapshots[:300], tables=report.tables[:300])
    assert len(shown(sync_display(some, everything=True)).splitlines()) > 600
    some_verified = replace(verified, tables=verified.tables[:300])
    assert len(shown(verify_display(some_verified, everything=True)).splitlines()) > 300


def test_what_was_read_again_is_told_as_done() -> None:
    reason = NeedsSnapshotError.because(ITEMS, "it was rewritten by DDL").what
    taken = TableSnapshot(ITEMS, Lsn(9), rows=7, reason=reason)
    status = PipelineStatus("shop", "/lake", None, None, None, (TableStatus(ITEMS, Lsn(9), snapshot_reason=reason),))
    texts = [shown(snapshot_table([taken], everything=False)), shown(status_display(status))]
    assert all("it was rewritten by DDL" in text and "needs" not in text for text in texts)
    assert "public.items, at 0/9: it was rewritten by DDL" in texts[1]


def test_the_demos_changes_add_up_to_the_rows_of_a_table_that_only_grows() -> None:
    def synced(inserts: int, *snapshots: TableSnapshot) -> SyncReport:
        counts = ChangeCounts(inserts, 0, 0, 0)
        return SyncReport(
            snapshots, (), (TableApplied(ORDERS, 1, 1, Lsn(0), Lsn(9), "applied", counts),), None, 0, 0, 2.0
        )

    syncs = [synced(4, TableSnapshot(ORDERS, Lsn(1), rows=100)), synced(30), synced(6)]
    status = PipelineStatus("shop", "/lake", None, None, None, (TableStatus(ORDERS),))
    result = table_result(TableVerified(ORDERS, Lsn(9), "equal", 3, RowCounts(140, 140)), syncs, status, status)
    assert result.snapshot_rows + result.changes == result.comparison.lake_rows == 140
    report = DemoReport(
        (result,), Path("lake"), Path("shop.yaml"), None, 3, sum(map(changes_of, syncs[1:])), 2.0, 4.0, 9.0
    )
    assert (report.changes, report.changes_per_second) == (40, 9.0)
