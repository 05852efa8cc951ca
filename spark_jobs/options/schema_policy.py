"""What happens to a table when its columns change at the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class SchemaPolicy:
    """What happens to a table whose columns changed at the source. ``add`` ``ignore``: a new column stays out of the
    lake. ``drop`` ``keep``: a dropped column stays in it. ``retype`` ``snapshot``: as ``on_rewrite`` says."""

    add: Literal["follow", "ignore", "stop"] = "follow"
    drop: Literal["follow", "keep", "stop"] = "follow"
    retype: Literal["snapshot", "stop"] = "snapshot"

    @cached_property
    def refused(self) -> frozenset[str]:
        """The kinds of change at which the table stops."""
        return frozenset(kind for kind in ("add", "drop", "retype") if getattr(self, kind) == "stop")

    @property
    def refused_in_snapshots(self) -> frozenset[str]:
        """The kinds of change that no snapshot brings which nobody asked for: it would lose the values of a kept
        column."""
        return self.refused | {"drop"} if self.drop == "keep" else self.refused

    @property
    def without_stops(self) -> SchemaPolicy:
        """For changes that the table has had before."""
        return replace(self, **{kind: getattr(FOLLOW_ALL, kind) for kind in self.refused})

    def why_no_longer(self, ignored: Iterable[str]) -> str:
        """Why a table without the columns ``ignored``, which it left out, needs a re-snapshot; empty if it goes on."""
        names = ", ".join(ignored)
        if not names or self.add == "ignore":
            return ""
        return f"it lacks {names}, as on_schema_change said add: ignore, and says add: {self.add} now"


FOLLOW_ALL = SchemaPolicy()
