"""How long older versions of a Delta table can be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

_LEAST_LOG = timedelta(days=30)
_BEYOND_CUTS = timedelta(days=1)


@dataclass(frozen=True)
class History:
    """Data files stay for ``files`` after a version has replaced them, Delta's log for ``log``."""

    files: timedelta
    log: timedelta

    @classmethod
    def for_cuts(cls, age: timedelta) -> History:
        """That keeps versions readable which cuts of that age name."""
        return cls(age, max(age + _BEYOND_CUTS, _LEAST_LOG))

    @property
    def properties(self) -> dict[str, str]:
        """Those by which others keep as much."""
        return {
            "delta.deletedFileRetentionDuration": interval(self.files),
            "delta.logRetentionDuration": interval(self.log),
        }


# readers may still use a file that is no longer part of the table, writers may write one that is not yet part of it
FOR_READERS = History(timedelta(days=1), timedelta(days=1))


def interval(duration: timedelta) -> str:
    """As the value of a property."""
    return f"interval {int(duration.total_seconds() // 3600)} hours"
