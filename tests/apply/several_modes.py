"""Several tables of the lake that show one source table."""

from __future__ import annotations

from spark_jobs.configuration import Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName


def in_modes(relation: QualifiedName, *modes: Mode) -> tuple[Table, ...]:
    """As ``modes`` in the configuration."""
    first, *further = modes
    return Table(relation, first), *(
        Table(QualifiedName(relation.nspname, f"{relation.relname}__{mode}"), mode, shows=relation) for mode in further
    )
