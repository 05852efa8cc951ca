"""How it shows from outside which stage a run has reached: in PostgreSQL's sessions and locks, in the lake's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_jobs.configuration import Lake
from tests.fixtures.advisory_locks import Ask, LockKey, any_held

Stage = Literal[
    "any moment",
    "connected",
    "reading",
    "spooling",
    "landed",
    "staging",
    "writing",
    "between tables",
    "cut",
    "snapshot",
]
# beside them lie the records of chunks that are read
_STAGED = "_staging/*/*/[0-9]*/*"
_OURS = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'postgres-cdc' AND datname = current_database()"


@dataclass(frozen=True)
class Files:
    """How many there are of each kind in the lake. None ever goes: nobody compacts the log or vacuums."""

    windows: int
    staged: int
    data: int
    commits: int

    @classmethod
    def of(cls, lake: Lake) -> Files:
        place = Path(lake.path)
        return cls(
            windows=_count(place, "change_log/_delta_log/*.json"),
            staged=_count(place, _STAGED),
            data=_count(place, "tables/**/*.parquet"),
            commits=_count(place, "tables/*/*/_delta_log/*.json"),
        )


@dataclass(frozen=True)
class Lookout:
    """What one run is watched by; ``before``: the files that were there when it began. ``ask``: a session that is open
    already, as some stages last for milliseconds. ``spool``: the folder of temporary files of those without a JVM."""

    ask: Ask
    lake: Lake
    spool: Path
    cuts: frozenset[LockKey]
    before: Files

    def shows(self, stage: Stage) -> bool:
        """Whether the run has reached this stage."""
        return _SIGNS[stage](self)

    def has_session(self, condition: str = "true") -> bool:
        return bool(self.ask(f"{_OURS} AND {condition}"))

    def has_more(self, pattern: str, than: int) -> bool:
        return _count(Path(self.lake.path), pattern) > than

    def spools(self) -> bool:
        return _count(self.spool, "postgres-cdc-spool-*/*") > 0


_SIGNS: Mapping[Stage, Callable[[Lookout], bool]] = {
    "any moment": lambda _: True,
    "connected": lambda look: look.has_session(),
    "reading": lambda look: look.has_session("query LIKE 'COPY%'"),
    "spooling": lambda look: look.spools(),
    "landed": lambda look: look.has_more("change_log/_delta_log/*.json", look.before.windows),
    "staging": lambda look: look.has_more(_STAGED, look.before.staged),
    "writing": lambda look: look.has_more("tables/**/*.parquet", look.before.data),
    "between tables": lambda look: look.has_more("tables/*/*/_delta_log/*.json", look.before.commits),
    "cut": lambda look: any_held(look.ask, look.cuts),
    "snapshot": lambda look: look.has_session("query LIKE 'COPY%'"),
}


def _count(place: Path, pattern: str) -> int:
    return sum(1 for _ in place.glob(pattern))
