"""What a command hands back: one report, how a terminal shows it, and whether something failed."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType


@dataclass(frozen=True)
class Outcome:
    """``report`` is a frozen dataclass: the JSON document; None where the command has printed lines.
    ``display``: what a terminal shows of it; a plain string is for a program, and written as it is. ``problems`` are
    lines for stderr; any makes exit code 1."""

    report: object
    display: RenderableType
    problems: tuple[str, ...] = ()
    failed: bool = False

    @property
    def exit_code(self) -> int:
        return 1 if self.failed or self.problems else 0
