"""What reaches a terminal: no name, reason or value can make it do anything."""

from __future__ import annotations

import json

import pytest
from rich.console import Group
from rich.progress import Progress as ProgressDisplay
from rich.text import Text

from cdc_assets.cli.json_output import json_text
from cdc_assets.cli.terminal import BytesPerSecond, Terminal, TimeLeft, new_table
from spark_jobs.errors import CONTROLS, CdcError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import TableStatus

HOSTILE = "a\x1b[31mred\x9b2J\x1b]0;title\x07\u202egnp\u2028\r[/bold][blink]"


def test_a_result_is_printed_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("name", "reason", title=Text(HOSTILE))
    table.add_row(Text(HOSTILE), Text("of\na second line"))
    Terminal().show(Group(table, Text(HOSTILE)))
    shown = capsys.readouterr().out
    assert shown.count("[31mred") == 3
    assert shown.count("[/bold][blink]") == 3, "no markup of rich's either"
    assert not CONTROLS.search(shown.replace("\n", ""))


def test_problems_and_news_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().problem(f"{HOSTILE}\nand more", f"{HOSTILE}\nwhat to do")
    Terminal().say(f"{HOSTILE}\nand more")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("hint: ")
    assert not any(CONTROLS.search(line) for line in lines)


def test_json_escapes_what_a_terminal_obeys_and_loses_nothing() -> None:
    status = TableStatus(QualifiedName("public", "t"), applied_lsn=Lsn(1), snapshot_reason=HOSTILE)
    text = json_text(status)
    assert not CONTROLS.search(text.replace("\n", ""))
    assert json.loads(text)["snapshot_reason"] == HOSTILE


def test_an_error_is_one_harmless_line() -> None:
    error = CdcError(f"column {HOSTILE}\nis wrong", hint=f"rename {HOSTILE}")
    assert not CONTROLS.search(str(error))


def test_a_backlog_says_how_long_it_will_take() -> None:
    """At the pace so far: two of ten windows in four seconds leave eight, in sixteen."""
    clock = iter(range(0, 100, 2))
    display = ProgressDisplay(get_time=lambda: next(clock), auto_refresh=False)
    task = display.add_task("capture", total=10)
    column = TimeLeft()
    assert column.render(display.tasks[0]).plain == ""
    for done in range(1, 5):
        display.update(task, completed=done)
    left = column.render(display.tasks[0]).plain
    assert left == "0:00:12 left"
    display.update(task, completed=10)
    assert column.render(display.tasks[0]).plain == ""


def test_what_is_counted_in_bytes_shows_its_pace() -> None:
    clock = iter(range(0, 100, 2))
    display = ProgressDisplay(get_time=lambda: next(clock), auto_refresh=False)
    for unit in ("bytes", "windows"):
        task = display.add_task("read", total=10_000_000, unit=unit)
        for done in range(1, 4):
            display.update(task, completed=done * 1_000_000)
    read, windows = display.tasks
    assert BytesPerSecond().render(read).plain == "488.3 KiB/s"
    assert BytesPerSecond().render(windows).plain == ""
