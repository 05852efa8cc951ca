"""Progress of long work: one callable. The caller shows it in a terminal, in Dagster's log, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Step:
    """``done`` of ``total`` ``unit``s of one piece of work; total None: not known. ``what``: "capture", for example."""

    what: str
    detail: str
    done: int
    total: int | None
    unit: str


class Progress(Protocol):
    """Called from one thread, at most a few times a second; must not raise."""

    def __call__(self, step: Step, /) -> None: ...


def silent(step: Step, /) -> None:
    """Nobody is watching."""
