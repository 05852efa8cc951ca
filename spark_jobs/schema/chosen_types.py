"""Lake types that the configuration chooses for columns, in place of those of the type map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_jobs.options.column_options import ChosenType, ColumnOptions, OnUnrepresentable
from spark_jobs.schema.lake_types import NUMERIC_OID, LakeKind, LakeType, lake_type
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts, TypeFacts
from spark_jobs.schema.wire_type import Family, wire_type

_UUID_OID = 2950
_JSON_OIDS = (114, 3802)  # json, jsonb


def with_options(facts: RelationFacts, options: ColumnOptions) -> RelationFacts:
    """``facts`` with the types and policies that the configuration chooses for columns. Choices that are impossible, or
    for columns that do not exist, are ignored: ``table_faults.option_fault`` reports these."""
    chosen = dict(options.types.columns)
    # a key without its value names no row, so in each mode a value that does not fit is an error in a key column
    policies: dict[str, OnUnrepresentable] = {**dict(options.policies), **dict.fromkeys(facts.key, "error")}

    def column(source: ColumnFacts) -> ColumnFacts:
        choice = chosen.get(source.attname)
        other = None if choice is None else chosen_lake_type(choice, source, facts.types)
        if source.attname in options.layout.partition_by:
            other = other or source.lake_type
            other = replace(other, has_no_empty_text=other.kind is LakeKind.STRING)
        return replace(source, chosen_type=other, on_unrepresentable=policies.get(source.attname, options.policy))

    return replace(facts, columns=tuple(map(column, facts.columns)))


def chosen_lake_type(chosen: ChosenType, column: ColumnFacts, types: Iterable[TypeFacts]) -> LakeType | None:
    """The lake type that was chosen; None if a column of this type cannot have it. ``types``: the facts of the types
    behind the columns' types."""
    if chosen.name == "array":
        element = element_type(column.base_typid, column.base_typmod, types)
        return None if element is None else LakeType(LakeKind.ARRAY, element=element, chosen=True)
    if chosen.name == "decimal" and column.base_typid == NUMERIC_OID:
        return LakeType(LakeKind.DECIMAL, chosen.precision, chosen.scale, chosen=True)
    if chosen.name == "variant" and column.base_typid in _JSON_OIDS:
        return LakeType(LakeKind.VARIANT, chosen=True)
    if chosen.name == "binary" and column.base_typid == _UUID_OID:
        return LakeType(LakeKind.BINARY, chosen=True)
    return None


def possible_types(column: ColumnFacts, types: Iterable[TypeFacts]) -> str:
    """The types that may be chosen for the column, in words; empty if none."""
    words = {NUMERIC_OID: "decimal(precision,scale)", _UUID_OID: "binary", **dict.fromkeys(_JSON_OIDS, "variant")}
    is_array = element_type(column.base_typid, column.base_typmod, types) is not None
    return "array" if is_array else words.get(column.base_typid, "")


def element_type(typid: int, typmod: int, types: Iterable[TypeFacts] = ()) -> LakeType | None:
    """The lake type of an array's elements, by the same map as for columns; None if ``typid`` is not an array, or its
    elements are not separated by commas (``box[]``)."""
    known = {facts.typid: facts for facts in types}
    array = wire_type(typid, known.values())
    if array.family is not Family.ARRAY or array.parts[0].delimiter != ",":
        return None
    element = array.parts[0].typid
    if element not in known or known[element].typtype != "d":
        return lake_type(element, typmod)
    while element in known and known[element].typtype == "d":
        element = known[element].parts[0]
    return lake_type(element, -1)  # the facts do not have a domain's type modifier
