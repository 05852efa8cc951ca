"""What was done to tables, in the lines that a terminal shows."""

from __future__ import annotations

from rich.console import Console, RenderableType

from cdc_assets.cli.json_output import json_value
from cdc_assets.cli.status import _display as status_display
from cdc_assets.cli.sync import _display as sync_display
from cdc_assets.cli.table_reports import modes_changed
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_state import PartitionsRead
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.status import PipelineStatus, TableStatus
from spark_jobs.sync import SyncReport

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
    assert modes_changed([changed, failed]).plain.splitlines() == [
        "mode of public.orders: mirror to history, rebuilt from the change log, known since 0/19A2F08",
        "mode of public.items: stopped",
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


def test_status_says_it_until_the_next_snapshot() -> None:
    status = PipelineStatus("shop", "/lake", None, None, None, (TableStatus(ORDERS, partitions=READ),))
    said = "public.orders: partition public.orders_7 was attached: 1,234 rows read again at 0/1A2B3C"
    assert said in shown(status_display(status))
