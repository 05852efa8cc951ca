"""How the data files of a table are arranged, and which properties of Delta it has besides ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableLayout:
    """``cluster_by`` or ``partition_by``: columns, by their names in the catalogue. ``properties``: of Delta.

    https://docs.delta.io/latest/delta-clustering.html
    """

    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.cluster_by, *self.partition_by)


NO_LAYOUT = TableLayout()
