"""What the command says of partitions that were read again alone."""

from __future__ import annotations

from rich.console import Console, RenderableType

from cdc_assets.cli.status import _display as status_display
from cdc_assets.cli.sync import _display as sync_display
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.lake.table_state import PartitionsRead
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import PipelineStatus, TableStatus
from spark_jobs.sync import SyncReport

NAME = QualifiedName("public", "orders")
READ = PartitionsRead("partition public.orders_7 was attached", 1234, "0/1A2B3C")


def shown(display: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(display)
    return captured.get()


def test_sync_says_why_and_how_many_rows() -> None:
    applied = TableApplied(NAME, 1, 2, Lsn(0), Lsn(9), "applied", partitions=READ)
    later = TableApplied(NAME, 3, 3, Lsn(9), Lsn(10), "nothing to apply")
    report = SyncReport((), (), (applied, later), None, 0, 0, 1.0)
    said = "public.orders: partition public.orders_7 was attached: only those rows were read again, 1,234 at 0/1A2B3C"
    assert said in shown(sync_display(report))


def test_status_says_it_until_the_next_snapshot() -> None:
    status = PipelineStatus("shop", "/lake", None, None, None, (TableStatus(NAME, partitions=READ),))
    said = "public.orders: partition public.orders_7 was attached: 1,234 rows read again at 0/1A2B3C"
    assert said in shown(status_display(status))
