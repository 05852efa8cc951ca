"""Which columns of a Relation message are masked, decided with certainty or not at all.

The configuration masks columns by their present names, a message has the names of its time, and a name may have gone
from one column to another. So a name stands for every column that bore it at any look at the catalogue: where all of
these are masked the message's column is, where none is it is not, and everything else is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_jobs.logicalrep.relation import Relation
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.table_mask import TableMask

ColumnNames = Mapping[int, str]  # by attribute number


@dataclass(frozen=True)
class MaskedRelation:
    """A table with masked columns. ``now``: its columns; ``earlier``: what earlier looks at the catalogue showed."""

    relid: int
    name: str
    mask: TableMask
    now: ColumnNames
    earlier: tuple[ColumnNames, ...] = ()

    @classmethod
    def of(cls, facts: RelationFacts, mask: TableMask) -> MaskedRelation:
        return cls(facts.relid, str(facts.name), mask, {column.attnum: column.attname for column in facts.columns})

    def with_earlier(self, looks: Sequence[Fingerprint]) -> MaskedRelation:
        """The same, with what one more look showed; nothing where that look did not know the table."""
        found = tuple(column_names(look) for look in looks if look.relid == self.relid)
        return replace(self, earlier=(*self.earlier, *found))

    def places(self, relation: Relation) -> tuple[int, ...] | None:
        """The places of the masked columns in the message; None where they are in doubt.

        In doubt is a name that no look has shown, or that masked and other columns bore; columns that do not stand in
        the order of their numbers; and a message without a masked column that the table had at every look.
        """
        places: list[int] = []
        reached, found = 0, set()
        for place, column in enumerate(relation.columns):
            numbers = self._numbers_of(column.name)
            following = [number for number in numbers if number > reached]
            if not following or len({number in self._masked for number in numbers}) > 1:
                return None
            reached = following[0]
            found.update(numbers)
            if reached in self._masked:
                places.append(place)
        always = [number for number in self._masked if all(number in names for names in self._descriptions)]
        return tuple(places) if found.issuperset(always) else None

    def taken_from(self, before: Fingerprint) -> tuple[str, str] | None:
        """The name of a column that was masked at the look ``before`` under a name that another column has by now, and
        its own name by now, which is not masked."""
        masked_then = before.mask.columns if before.mask is not None else ()
        for number, name in column_names(before).items():
            present = self.now.get(number)
            if name in masked_then and name in self.mask.columns and present not in (None, *self.mask.columns):
                return name, str(present)
        return None

    @property
    def _descriptions(self) -> tuple[ColumnNames, ...]:
        return (self.now, *self.earlier)

    @property
    def _masked(self) -> frozenset[int]:
        """By number: the masked columns that are there, and dropped ones that bore a name that is masked."""
        there = {number for number, name in self.now.items() if name in self.mask.columns}
        gone = {
            number
            for names in self.earlier
            for number, name in names.items()
            if number not in self.now and name in self.mask.columns
        }
        return frozenset(there | gone)

    def _numbers_of(self, name: str) -> list[int]:
        return sorted({number for names in self._descriptions for number, known in names.items() if known == name})


def column_names(look: Fingerprint) -> ColumnNames:
    """The columns that one look at the catalogue showed."""
    return {column.attnum: column.attname for column in look.columns}
