"""What ``drop`` finds, removes and leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_jobs.errors import CdcError

Kind = Literal[
    "slot", "publication", "table", "messages", "unrepresentable values", "cuts", "change log", "temporary files"
]


@dataclass(frozen=True)
class Removal:
    """``bytes``: of a slot the WAL that the server keeps for it, of a part of the lake its files; None if it is not
    known. ``note``: what to know before it is removed."""

    kind: Kind
    name: str
    bytes: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Left:
    """What is kept, and why. ``error``: it should have been removed, and the hint says how."""

    name: str
    why: str
    error: CdcError | None = None


@dataclass(frozen=True)
class DropPlan:
    """``keeps_lake``: the lake stays as it is, with ``tables`` Delta tables."""

    pipeline: str
    lake: str
    keeps_lake: bool
    tables: int
    removals: tuple[Removal, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True)
class DropReport:
    """What ``drop`` has done; ``removed`` in order of removal."""

    pipeline: str
    lake: str
    keeps_lake: bool
    tables: int
    removed: tuple[Removal, ...]
    left: tuple[Left, ...]
    seconds: float

    @property
    def errors(self) -> tuple[CdcError, ...]:
        return tuple(each.error for each in self.left if each.error is not None)
