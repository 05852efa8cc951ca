"""What was done to tables, in the lines that a terminal shows."""

from __future__ import annotations

from cdc_assets.cli.json_output import json_value
from cdc_assets.cli.table_reports import modes_changed
from spark_jobs.errors import LakeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.change_mode import ModeChanged

ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")


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
