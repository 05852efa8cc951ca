"""How many changes of each kind: counted when landed, when reduced and when committed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangeCounts:
    """A Truncate counts once for each table that it names. In JSON the four counts are fields of the object that they
    belong to."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0

    @property
    def rows(self) -> int:
        """Changes of one row each."""
        return self.inserts + self.updates + self.deletes

    @property
    def total(self) -> int:
        return self.rows + self.truncates

    def __add__(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.truncates + other.truncates,
        )


NO_CHANGES = ChangeCounts()
