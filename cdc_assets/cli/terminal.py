"""What a person sees: progress and problems on stderr, the result on stdout, counts in readable figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO, TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressDisplay
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.cli.fitted_table import WIDE, FittedTable
from cdc_assets.cli.output_choice import FEW, OutputChoice
from cdc_assets.cli.pasted_hint import pasted_hint
from spark_jobs.errors import CONTROLS, one_line
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.readable_size import size

_ROOM_FOR_BARS = 130


def counted(count: int, noun: str) -> str:
    """``1 window``, ``1,200 windows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_Item = TypeVar("_Item")


def told_apart(
    items: Sequence[_Item], is_well: Callable[[_Item], bool], *, everything: bool
) -> tuple[tuple[_Item, ...], tuple[_Item, ...]]:
    """The items to list; and those that are only counted, as they are well and more than ``FEW``, unless ``everything``
    is asked for."""
    well = () if everything else tuple(filter(is_well, items))
    if len(well) <= FEW:
        return tuple(items), ()
    return tuple(item for item in items if not is_well(item)), well


def paragraphs(*parts: RenderableType | None) -> Group:
    """Those that are not None, with an empty line between two."""
    renderables = [part for part in parts if part is not None]
    return Group(*(line for part in renderables for line in (part, Text())[: 1 if part is renderables[-1] else 2]))


def lines(texts: Iterable[str], *, heading: str = "", style: str = "") -> Text | None:
    """One line for each, below the heading; None if there is none."""
    listed = list(texts)
    return Text("\n".join([*filter(None, [heading]), *listed]), style=style) if listed else None


def known(figure: int | None, form: str = "{:,}") -> str:
    """A figure of a report, or a dash."""
    return "–" if figure is None else form.format(figure)


def only_counted(text: str) -> Text:
    """The line for what is well and not listed."""
    return Text(f"{text}: --verbose lists them", style="green")


def new_table(*headings: str, right: tuple[str, ...] = (), title: Text | None = None) -> Table:
    """An empty table; the columns named in ``right`` hold figures and are right-aligned."""
    table = FittedTable(title=title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


class Terminal:
    """The two consoles of one call. Progress is drawn only if stderr is a terminal."""

    def __init__(self, choice: OutputChoice | None = None) -> None:
        self.choice = choice or OutputChoice()
        self.configuration: Path | None = None  # as the command line names it
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self.stdout: TextIO = sys.stdout  # the process's own; whatever else the work prints goes to stderr

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer, and the result is not for a program."""
        return sys.stdin.isatty() and self.errors.is_terminal and not self.choice.as_json

    def problem(self, what: str, hint: str = "") -> None:
        """One line on stderr, in the form of Unix commands; printed raw, so that it can be searched. What to do is on a
        line of its own, so that it can be copied."""
        advice = f"hint: {one_line(pasted_hint(hint, self.configuration))}\n" if hint else ""
        sys.stderr.write(f"postgres-cdc: {one_line(what)}\n{advice}")
        sys.stderr.flush()

    def deprecated(self, note: str) -> None:
        """Told to a person only: stderr of a job is one line for each problem, and cron would send this each time."""
        if self.errors.is_terminal and not self.choice.quiet:
            self.problem(note)

    def say(self, line: str) -> None:
        """One line about the current step, for a person who waits."""
        if not self.choice.quiet:
            self.errors.print(Text(f"» {one_line(line)}"))

    def line(self, text: str) -> None:
        """One line of the result, printed at once: for a command that continues."""
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def show(self, result: RenderableType) -> None:
        """The result on stdout; if stdout is a file, wide enough not to cut a table."""
        _print(result, on_stderr=False)

    def announce(self, what: RenderableType) -> None:
        """What is about to be done, in the same form on stderr."""
        _print(what, on_stderr=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Draws steps as they come, for as long as the block lasts."""
        if self.choice.quiet or not self.errors.is_terminal:
            yield silent
            return
        with ProgressDisplay(*progress_columns(self.errors.width), console=self.errors, transient=True) as display:
            yield _Steps(display)


def progress_columns(width: int) -> Iterator[ProgressColumn]:
    """Of a line of progress. Where there is little room, names are cut off: amounts and times say how it goes on."""
    whole = Column(no_wrap=True)
    yield SpinnerColumn()
    yield _Description("{task.description}", table_column=Column())
    if width >= _ROOM_FOR_BARS:
        yield BarColumn(bar_width=24, table_column=whole)
    yield TextColumn("{task.fields[amount]}", table_column=whole)
    yield BytesPerSecond(table_column=whole)
    yield TimeElapsedColumn(table_column=whole)
    yield TimeLeft(table_column=whole)


class _Description(TextColumn):
    """What is being done, on one line in as much room as there is."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap = True
        text.overflow = "ellipsis"
        return text


def _print(what: RenderableType, *, on_stderr: bool) -> None:
    console = Console(stderr=on_stderr, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=on_stderr, highlight=False, width=WIDE)
    console.print(_Harmless(what), crop=False)  # a line to paste is longer than the terminal is wide


@dataclass(frozen=True)
class _Harmless:
    """A result without the control characters that names and reasons may hold, since a terminal would obey them."""

    result: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.result, options):
            lines = segment.text.split("\n")
            yield segment._replace(text="\n".join(CONTROLS.sub("", line) for line in lines))


class BytesPerSecond(ProgressColumn):
    """The pace so far of what is counted in bytes."""

    def render(self, task: Task) -> Text:
        if task.finished or not task.speed or task.fields.get("unit") != "bytes":
            return Text("")
        return Text(f"{size(round(task.speed))}/s", style="progress.data.speed")


class TimeLeft(ProgressColumn):
    """How long the rest will take at the pace so far, which can be told because all windows span the same WAL, and what
    is read is counted in bytes. Empty at the first step."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        if task.finished or left is None:
            return Text("")
        return Text(f"{timedelta(seconds=round(left))} left", style="progress.remaining")


class _Steps:
    """One line per kind of work, showing its last step."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display
        self._lines: dict[str, TaskID] = {}

    def __call__(self, step: Step, /) -> None:
        description = f"{step.what}  [dim]{Text(one_line(step.detail)).markup}[/dim]"
        if step.what not in self._lines:
            self._lines[step.what] = self._display.add_task(description, total=step.total, amount="", unit=step.unit)
        self._display.update(
            self._lines[step.what],
            description=description,
            completed=step.done,
            total=step.total,
            amount=step.amount,
        )
