"""What reaches a terminal: no name, reason or value can make it do anything."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, Group
from rich.progress import Progress as ProgressDisplay
from rich.text import Text

from cdc_assets.cli.json_output import json_text
from cdc_assets.cli.terminal import BytesPerSecond, Terminal, TimeLeft, new_table, progress_columns
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


def test_a_hint_names_the_configuration_as_the_call_did(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    hints = (
        "`postgres-cdc recover --config FILE` begins a new chapter, and so does `sync`",
        "postgres-cdc snapshot --table 'public.a'",
        "postgres-cdc sync --help",
        "`postgres-cdc init` writes a new one",
    )
    for hint in hints:
        terminal.problem("no", hint)
    terminal.configuration = Path("my shop.yaml")
    for hint in hints:
        terminal.problem("no", hint)
    said = [line.removeprefix("hint: ") for line in capsys.readouterr().err.splitlines() if line.startswith("hint: ")]
    assert said == [
        "`postgres-cdc recover` begins a new chapter, and so does `sync`",
        *hints[1:],
        "`postgres-cdc recover --config 'my shop.yaml'` begins a new chapter, and so does `sync`",
        "postgres-cdc snapshot --config 'my shop.yaml' --table 'public.a'",
        *hints[2:],
    ]


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


def printed(width: int, *rows: tuple[str, ...]) -> list[str]:
    """As a terminal of this width gets it."""
    figures = ("inserts", "truncates", "rows written")
    table = new_table("table", *figures, "through", "outcome", right=figures)
    for row in rows:
        table.add_row(*row)
    text = StringIO()
    Console(file=text, width=width).print(table, crop=False)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_a_narrow_terminal_breaks_no_word() -> None:
    """It leaves out what is zero in all rows, then wraps texts; what is too wide then has the width of a file."""
    row = ("public.orders", "12,345", "0", "7", "0/16F2F60", "nothing to apply")
    assert printed(80, row) == [
        "table          inserts  truncates  rows written  through    outcome",
        "public.orders   12,345          0             7  0/16F2F60  nothing to apply",
    ]
    assert printed(70, row) == [
        "table          inserts  rows written  through    outcome",
        "public.orders   12,345             7  0/16F2F60  nothing to apply",
    ]
    assert printed(55, row) == [
        "                             rows",
        "table          inserts    written  through    outcome",
        "public.orders   12,345          7  0/16F2F60  nothing",
        "                                              to apply",
    ]
    assert printed(40, row) == printed(70, row)
    both = ("shop.order_lines", "0", "1", "7", "0/16F2F60", "applied")
    assert printed(70, row, both)[-1].split() == ["shop.order_lines", "0", "1", "7", "0/16F2F60", "applied"]


def test_progress_is_a_line_on_a_narrow_terminal() -> None:
    """Amount, pace and times are whole, the name is cut off."""
    clock = iter(range(100))
    text = StringIO()
    console = Console(file=text, width=80)
    display = ProgressDisplay(*progress_columns(80), console=console, auto_refresh=False, get_time=lambda: next(clock))
    task = display.add_task("read  public.pgbench_accounts", total=100_000_000, amount="", unit="bytes")
    for done in range(1, 4):
        display.update(task, completed=done * 10_000_000, amount="38.9 MiB of 136.7 MiB")
    console.print(display.get_renderable())
    [line] = text.getvalue().splitlines()
    assert "read  public.pgbench_acc… 38.9 MiB of 136.7 MiB 9.5 MiB/s 0:00:10 0:00:07 left" in line
