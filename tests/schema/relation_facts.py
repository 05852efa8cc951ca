"""What the catalogue says of a table of the tests."""

from __future__ import annotations

from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts


def column(attnum: int, attname: str, typid: int, base: int, attgenerated: str = "") -> ColumnFacts:
    return ColumnFacts(attnum, attname, typid, -1, "t", base, -1, "out", True, attgenerated)


# id is a domain over bigint; number 2 was dropped
FACTS = RelationFacts(
    relid=16384,
    nspname="public",
    relname="t",
    relreplident="d",
    primary_key=("id",),
    replica_identity=("id",),
    columns=(column(4, "sum", 23, 23, "s"), column(3, "note", 25, 25), column(1, "id", 16500, 20)),
)
