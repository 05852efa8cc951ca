"""What ``verify`` shows of its report: keys, never a control character of theirs, and one line for each problem."""

from __future__ import annotations

import io
import json

from rich.console import Console

from cdc_assets.cli.json_output import json_text
from cdc_assets.cli.verify import display
from spark_jobs.errors import SchemaChangeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.verify.table_verified import DifferingRow, KeyValue, RowCounts, TableVerified, VerifyReport

ORDERS, ITEMS, USERS = (QualifiedName("public", name) for name in ("orders", "items", "us\x1b[31mers"))
REPORT = VerifyReport(
    (
        TableVerified.compared(ORDERS, Lsn(16), 3, RowCounts(10, 10), ()),
        TableVerified.not_compared(ITEMS, Lsn(16), SchemaChangeError("it has other columns", hint="snapshot it")),
        TableVerified.compared(
            USERS,
            Lsn(16),
            4,
            RowCounts(1000, 1000, missing=1, extra=1, changed=1),
            (
                DifferingRow("missing", (KeyValue("name", "[bold]\x1b]0;title\x07\n"), KeyValue("n", None))),
                DifferingRow("changed", (KeyValue("name", "b"), KeyValue("n", "2")), ("note", "paid")),
            ),
        ),
    ),
    1.5,
)


def test_keys_are_shown_as_they_are_without_control_characters() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(display(REPORT))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "name=[bold] , n=None" in shown
    assert "note, paid" in shown
    assert not {character for character in shown if ord(character) < 32} - {"\n"}


def test_one_line_for_each_table_that_is_not_equal() -> None:
    items, users = REPORT.problems
    assert items.lines == "public.items was not compared at 0/10: it has other columns\nhint: snapshot it"
    assert "1 rows are missing in the lake, 1 are extra, 1 are changed, of 1,000" in users.what
    assert "take a new snapshot of this table: postgres-cdc snapshot --table 'public.U&" in users.hint
    assert "[bold]" not in users.lines, "Dagster keeps this line, and keys may be somebody's data"


def test_json_has_the_fields() -> None:
    orders, items, users = json.loads(json_text(REPORT))["tables"]
    assert (orders["verdict"], orders["lsn"], orders["counts"]["source_rows"]) == ("equal", "0/10", 10)
    assert items["error"]["type"] == "SchemaChangeError"
    assert users["rows"][1] == {
        "difference": "changed",
        "key": [{"column": "name", "value": "b"}, {"column": "n", "value": "2"}],
        "columns": ["note", "paid"],
    }
