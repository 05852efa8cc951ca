"""A table that a narrow terminal shows without breaking a word: half a name, an LSN or a path cannot be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

WIDE: Final = 200  # of what is written to a file
_GAP = 2
_NOTHING = ("", "0", "–", "0 bytes")


@dataclass(frozen=True)
class _Fitted:
    """A column, and the widths of its longest word and its longest line. A figure is one word with its unit."""

    column: Column
    least: int
    whole: int

    @classmethod
    def of(cls, column: Column, console: Console, options: ConsoleOptions) -> _Fitted:
        heading, *cells = (Measurement.get(console, options, cell) for cell in (column.header, *column.cells))
        words = [cell.maximum if column.justify == "right" else cell.minimum for cell in cells]
        return cls(column, max([heading.minimum, *words]), max(cell.maximum for cell in (heading, *cells)))

    @property
    def says_something(self) -> bool:
        return any(str(cell) not in _NOTHING for cell in self.column.cells)


class FittedTable(Table):
    """Where there is too little room, columns without any figure but zero are left out; then headings and texts are
    wrapped between words. A table that is wider all the same runs over the edge, as wide as in a file."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=max(options.max_width, WIDE))
        columns = [_Fitted.of(column, console, wide) for column in self.columns]
        room = options.max_width
        if sum(column.whole + _GAP for column in columns) - _GAP > room:
            columns = [column for column in columns if column.says_something]
        if _least(columns) > room:
            options, room = wide, wide.max_width
        shown = Table(
            title=self.title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
        )
        for each, width in zip(columns, _widths(columns, room), strict=True):
            shown.add_column(each.column.header, justify=each.column.justify, width=width, overflow="fold")
        for row in zip(*(each.column.cells for each in columns), strict=True):
            shown.add_row(*row)
        yield from console.render(shown, options)


def _least(columns: Iterable[_Fitted]) -> int:
    return sum(each.least + _GAP for each in columns) - _GAP


def _widths(columns: Sequence[_Fitted], room: int) -> list[int]:
    """What is left beside the longest words is shared out evenly, to nobody more than the longest line takes."""
    widths = [each.least for each in columns]
    spare = max(0, room - _least(columns))
    needed = sorted((each.whole - each.least, index) for index, each in enumerate(columns))
    for waiting, (need, index) in zip(range(len(columns), 0, -1), needed, strict=True):
        given = min(need, spare // waiting)
        widths[index] += given
        spare -= given
    return widths
