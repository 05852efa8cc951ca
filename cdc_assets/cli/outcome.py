"""What a command returns: one report, its display in a terminal, and whether something failed."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from spark_jobs.errors import CdcError


@dataclass(frozen=True)
class Outcome:
    """``report``: a frozen dataclass that becomes the JSON document; None if the command has printed lines itself.
    ``display``: what a terminal shows; a plain string is meant for a program, and is written as it is. ``problems`` go
    to stderr; with any of them the exit code is 1."""

    report: object
    display: RenderableType
    problems: tuple[CdcError, ...] = ()
    failed: bool = False

    @property
    def exit_code(self) -> int:
        return 1 if self.failed or self.problems else 0
