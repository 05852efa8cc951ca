"""Another table under the name of a replicated one, as the changes in a window show it."""

from __future__ import annotations

from spark_jobs.change_log.window_marker import RelationCounts, WindowMarker
from spark_jobs.errors import SchemaChangeError
from spark_jobs.qualified_name import QualifiedName


def is_of_another(counts: RelationCounts, name: QualifiedName, relid: int) -> bool:
    """Whether these are changes of a table that has the name ``name``, and is not the one with this OID."""
    return counts.relid != relid and (counts.nspname, counts.relname) == (name.nspname, name.relname)


def another_table(marker: WindowMarker, name: QualifiedName, *, hint: str) -> SchemaChangeError:
    """The error for the first window with such changes. ``hint``: what helps who has asked."""
    what = "is another table: it was dropped and re-created, or another was renamed to it"
    return SchemaChangeError(f"{name} {what}, in window {marker.ordinal} ({marker.window})", hint=hint)
