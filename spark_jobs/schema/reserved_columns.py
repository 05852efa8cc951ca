"""Column names that Spark and Delta cannot handle: names that they use themselves, and names that differ only in case.

Found by experiment, with Delta 4.4: tests/spark/test_column_names.py merges a table with each of them, and follows
tables with names that only look reserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import count

from spark_jobs.qualified_name import quoted_identifier
from spark_jobs.schema.relation_facts import RelationFacts

# Delta adds these to a table's columns when it reads or merges a table with deletion vectors
RESERVED = frozenset(
    {
        "_metadata",
        "_tmp_metadata_row_index",
        "__delta_internal_is_row_deleted",
        "_row_dropped_",
        "_source_row_present_",
        "_target_row_present_",
        "deletionvectorid",
        "dvfilepath",
    }
)
# reserved only if the condition of a MERGE uses them
RESERVED_IN_KEY = frozenset({"_row_id_", "_file_name_"})

_LONGEST_NAME = 63  # bytes; PostgreSQL cuts a longer one


def reserved_columns(names: Iterable[str], key: Collection[str] = ()) -> tuple[str, ...]:
    """Those of ``names`` that Delta uses itself when a table is followed. ``key``: those of ``names`` in the key."""
    return tuple(
        name
        for name in names
        if not _folded(name).isdisjoint(RESERVED) or (name in key and not _folded(name).isdisjoint(RESERVED_IN_KEY))
    )


def columns_alike(names: Collection[str]) -> tuple[str, ...]:
    """Those of ``names`` that differ from another one only in case: to Spark both are one column."""
    counts = Counter(form for name in names for form in _folded(name))
    return tuple(name for name in names if any(counts[form] > 1 for form in _folded(name)))


def name_remedy(facts: RelationFacts) -> str:
    """For a hint: what renames those columns."""
    names = _may_enter(facts)
    wrong = reserved_columns(names, facts.key or names) or columns_alike(names)[1:]
    taken = {form for column in facts.columns for form in _folded(column.attname)}
    renames = []
    for name in wrong:
        stem = name if len(name.encode()) < _LONGEST_NAME - len("_100") else name[: _LONGEST_NAME // 5]
        others = (f"{stem}_{number}" for number in count(2))
        new = next(other for other in others if taken.isdisjoint(_folded(other)))
        taken |= _folded(new)
        renames.append(f"ALTER TABLE {facts.name} RENAME COLUMN {quoted_identifier(name)} TO {quoted_identifier(new)}")
    return f"{'; '.join(renames)}, or take the table out of tables:"


def name_fault(facts: RelationFacts) -> str | None:
    """What is wrong with the names of the columns that may enter the lake, None if nothing is."""
    names = _may_enter(facts)
    if reserved := reserved_columns(names, facts.key or names):
        return f"columns whose names Delta Lake uses itself: {', '.join(reserved)}"
    if alike := columns_alike(names):
        return f"columns whose names differ only in case, which is one name to Spark: {', '.join(alike)}"
    return None


def _may_enter(facts: RelationFacts) -> list[str]:
    return [column.attname for column in facts.columns if column.attgenerated in ("", "s")]


def _folded(name: str) -> frozenset[str]:
    """The forms by which Spark compares names: ``toLowerCase`` in some places, ``equalsIgnoreCase`` in others.

    The latter converts each character to upper and then to lower case, except one that would become two (ß).
    """
    raised = (char.upper() if len(char.upper()) == 1 else char for char in name)
    return frozenset({name.lower(), "".join(char.lower()[0] for char in raised)})
