"""Check ``mask:`` of tables against the source: the tables and columns that it names must exist."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.tables.at_source import AtSource


def masked_table_facts(at_source: AtSource) -> tuple[RelationFacts, ...]:
    """The facts of all tables with a mask. Raises ConfigurationError if a masked table or column does not exist. Then
    nothing may be read: it may have another name now, under which its values would be sent unmasked.

    A table that only a pattern names is left out if the mask does not fit it: it alone is stopped, and a window that
    holds rows of it is refused."""
    pipeline, connection = at_source.pipeline, at_source.connection
    masks = pipeline.masks
    facts = relation_facts(connection, names=tuple(masks), masks=masks) if masks else ()
    faults = {table.name: why_mask_does_not_fit(table, masks[table.name]) for table in facts}
    singly = [name for name in masks if pipeline.names_singly(name)]
    if missing := [str(name) for name in singly if name not in faults]:
        where = f"in database {connection.info.dbname}"
        raise ConfigurationError(
            f"tables: mask: there is no table {', '.join(missing)} {where}: nothing is read",
            hint="if it was renamed, correct tables:; if it was dropped, drop the slot, take the table out and run"
            " `postgres-cdc recover`: what the slot still holds of it would come unmasked",
        )
    if error := next(filter(None, map(faults.get, singly)), None):
        raise error
    return tuple(table for table in facts if faults[table.name] is None)


def why_mask_does_not_fit(facts: RelationFacts, mask: TableMask) -> ConfigurationError | None:
    """Why the mask does not fit the table as it is now, None if it does."""
    names = [column.attname for column in facts.columns]
    if unknown := [name for name in mask.columns if name not in names]:
        return ConfigurationError(
            f"tables: {facts.name}: mask: {facts.name} has no column {', '.join(unknown)}: nothing is read",
            hint=f"mask columns by the names that they have now: {', '.join(names)}",
        )
    return None


def mask_words(at_source: AtSource) -> Mapping[QualifiedName, str]:
    """For each masked table the word of its masks, as in ``TableState.mask``. Raises as ``masked_table_facts`` does."""
    return {table.name: table.mask for table in masked_table_facts(at_source)}
