"""Progress of long work: one callable. The caller shows it in a terminal, in Dagster's log, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.readable_size import size


@dataclass(frozen=True)
class Step:
    """``done`` of ``total`` ``unit``s of one piece of work; total None: not known. ``what``: "capture", for example.
    ``table``: which one is read in chunks."""

    what: str
    detail: str
    done: int
    total: int | None
    unit: str
    table: QualifiedName | None = None

    @property
    def amount(self) -> str:
        """``3 of 10 windows``, ``412.3 MiB of 1.1 GiB``; without the total if it is not known."""
        if self.unit == "bytes":
            return size(self.done) if self.total is None else f"{size(self.done)} of {size(self.total)}"
        return f"{self.done:,} {'' if self.total is None else f'of {self.total:,} '}{self.unit}"


class Progress(Protocol):
    """Called by one thread at a time, at most a few times a second; must not raise."""

    def __call__(self, step: Step, /) -> None: ...


def silent(step: Step, /) -> None:
    """Nobody is watching."""


def in_turns(progress: Progress) -> Progress:
    """For work of several threads."""
    turn = Lock()

    def shown(step: Step, /) -> None:
        with turn:
            progress(step)

    return shown
