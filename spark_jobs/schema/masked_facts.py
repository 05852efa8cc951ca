"""The facts of a table with masked columns, described as what they become: hashes, which are text."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.options.table_mask import TableMask
from spark_jobs.schema.relation_facts import NOT_UTF_8, ColumnFacts, RelationFacts

# the type of a masked column in Relation messages, in facts, and so in the lake
TEXT_OID, NO_TYPMOD = 25, -1


def masked_facts(facts: RelationFacts, mask: TableMask | None) -> RelationFacts:
    """``facts`` with the columns in ``mask`` as text, and their missing values hashed. Only ``typoutput`` remains that
    of the source's type: hashes are made from its output. Names that the table lacks are ignored."""
    if mask is None:
        return facts
    columns = tuple(_masked(column, mask) if column.attname in mask.columns else column for column in facts.columns)
    return replace(facts, columns=columns, mask=mask.word([column.attnum for column in columns if column.masked]))


def _masked(column: ColumnFacts, mask: TableMask) -> ColumnFacts:
    missing = column.attmissingval
    return replace(
        column,
        atttypid=TEXT_OID,
        atttypmod=NO_TYPMOD,
        typname="text",
        base_typid=TEXT_OID,
        base_typmod=NO_TYPMOD,
        attmissingval=None if missing is None else mask.hashed(missing.encode(errors=NOT_UTF_8)).decode(),
        masked=True,
    )
