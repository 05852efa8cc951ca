"""Which columns of a Relation message are masked: decided with certainty, or not at all.

The configuration masks columns by their current names. A message has the names of its own time, and a name may have
passed from one column to another. So a name in a message stands for every column that had it at some look at the
catalogue. A name that no look has shown stands for every column whose attribute number lies between those of its
neighbours, as columns are sent in that order. If all of these columns are masked, the message's column is masked; if
none is, it is not; otherwise it is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_jobs.logicalrep.relation import Relation
from spark_jobs.options.table_mask import TableMask
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.relation_facts import RelationFacts

ColumnNames = Mapping[int, str]  # by attribute number


@dataclass(frozen=True)
class MaskedRelation:
    """A table with masked columns. ``now``: its current columns. ``earlier``: its columns at earlier looks at the
    catalogue."""

    relid: int
    name: str
    mask: TableMask
    now: ColumnNames
    earlier: tuple[ColumnNames, ...] = ()

    @classmethod
    def of(cls, facts: RelationFacts, mask: TableMask) -> MaskedRelation:
        return cls(facts.relid, str(facts.name), mask, {column.attnum: column.attname for column in facts.columns})

    @property
    def word(self) -> str:
        """The word of the table's masks, as in ``RelationFacts.mask``."""
        return self.mask.word([number for number, name in self.now.items() if name in self.mask.columns])

    def with_earlier(self, looks: Sequence[Fingerprint]) -> MaskedRelation:
        """This table with its columns at one more look. ``looks``: its fingerprints, which may lack the table."""
        names = tuple(column_names(look) for look in looks if look.relid == self.relid)
        return replace(self, earlier=(*self.earlier, *names))

    def knows(self, relation: Relation) -> bool:
        """Whether some look has shown each of the message's column names."""
        return all(self._numbers_of(column.name) for column in relation.columns)

    def places(self, relation: Relation) -> tuple[int, ...] | None:
        """The indices of the masked columns in the message; None if they are in doubt.

        A column that no look can have shown was added and dropped between two looks. It is masked: it never reaches the
        lake, and may be a copy of a masked one. Besides the cases above, a message is in doubt if its columns are not
        in the order of their numbers, or if it lacks a masked column that the table had at every look.
        """
        candidates = self._candidates([self._numbers_of(column.name) for column in relation.columns])
        if candidates is None:
            return None
        places = []
        for place, numbers in enumerate(candidates):
            masked = numbers & self._masked
            if masked and masked != numbers:
                return None
            if masked or not numbers:
                places.append(place)
        always = {number for number in self._masked if all(number in names for names in self._descriptions)}
        return tuple(places) if always <= frozenset().union(*candidates) else None

    def _candidates(self, named: Sequence[frozenset[int]]) -> list[frozenset[int]] | None:
        """For each column the numbers that it may have; None if the columns are out of order. ``named``: for each
        column the numbers of the columns that had its name."""
        everyone = frozenset(number for names in self._descriptions for number in names)
        free = everyone.difference(*named)
        reached, lows = 0, []
        for numbers in named:
            if numbers:
                reached = min((number for number in numbers if number > reached), default=-1)
            if reached < 0:
                return None
            lows.append(reached)
        candidates, high = [], max(everyone, default=0) + 1
        for numbers, low in zip(reversed(named), reversed(lows), strict=True):
            candidates.append(numbers or frozenset(number for number in free if low < number < high))
            high = max(numbers) if numbers else high
        return candidates[::-1]

    def taken_from(self, before: Fingerprint) -> tuple[str, str] | None:
        """If a column was masked at the look ``before``, and its name at that time, which is still masked, is another
        column's now: that name, and the column's current name, which is not masked. None otherwise."""
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
        """The numbers of the masked columns that exist, and of dropped ones that had a masked name."""
        present = {number for number, name in self.now.items() if name in self.mask.columns}
        dropped = {
            number
            for names in self.earlier
            for number, name in names.items()
            if number not in self.now and name in self.mask.columns
        }
        return frozenset(present | dropped)

    def _numbers_of(self, name: str) -> frozenset[int]:
        return frozenset(number for names in self._descriptions for number, known in names.items() if known == name)


def column_names(look: Fingerprint) -> ColumnNames:
    """The columns that one look at the catalogue showed."""
    return {column.attnum: column.attname for column in look.columns}
