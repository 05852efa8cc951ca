"""Which relations the plugin has announced, and which announcements the assembled transactions must repeat.

The plugin announces a relation (Type messages, then a Relation message) before the change that first needs it, in the
order in which it sends. Whether the server counts an announcement as sent for a later change depends on the
announcement's transaction and on the server's version. Yet before a server announces another version of a relation it
forgets all announcements of that relation, in whatever transaction they stand (``get_rel_sync_entry`` in pgoutput.c).
So the version in force for a change is the last one that *arrived* before it, in any transaction, even if that
transaction is aborted, rolled back, or committed in a later window. The assembled transactions are in commit order, so
an announcement is repeated wherever a different one was emitted last for its relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.message_batch import ROW_CHANGES, MessageBatch
from spark_jobs.logicalrep.relation import fingerprint

Ints = npt.NDArray[np.int64]


@dataclass
class _Announced:
    """A relation's announcements that differ from the one before, as numbers, and when each arrived."""

    arrivals: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    given_out: int | None = None

    @property
    def settled(self) -> bool:
        """Whether every change of the relation, whenever it arrived, needs the announcement that was emitted last."""
        return self.numbers == [self.given_out]

    @property
    def newest_given_out(self) -> bool:
        return self.numbers[-1] == self.given_out

    def number(self, arrivals: Ints) -> Ints:
        """The number of the announcement in force for messages that arrived then; -1 where there was none."""
        numbers: Ints = np.array([-1, *self.numbers])[np.searchsorted(self.arrivals, arrivals, side="right")]
        return numbers


class Announcements:
    """The announcements of one call. A message's arrival is its number among the call's messages, as the server sent
    them."""

    def __init__(self) -> None:
        self._relations: dict[int, _Announced] = {}
        self._numbers: dict[tuple[bytes, ...], int] = {}  # of each announcement: its Type messages and its Relation
        self._versions: list[int] = []  # by number
        self._types: list[bytes] = []
        self._types_until = 0  # the arrival that continues them

    def begin_window(self) -> None:
        """What earlier windows of the call hold is to be repeated where this one needs it: each decodes on its own."""
        for relation in self._relations.values():
            relation.given_out = None

    def all_given_out(self, batch: MessageBatch) -> bool:
        """Whether nothing needs to be repeated in a batch that arrives next and is emitted at once."""
        waiting = [relid for relid, relation in self._relations.items() if not relation.newest_given_out]
        return not waiting or not np.isin(_uses(batch)[1], waiting).any()

    def arrive(self, arrival: int, message: bytes) -> None:
        """Note a Relation or Type message in protocol 1's form. To be called in the order of arrival."""
        if arrival != self._types_until:
            self._types.clear()
        if message[:1] == b"Y":
            self._types.append(message)
            self._types_until = arrival + 1
            return
        announcement = (*self._types, message)
        self._types.clear()
        number = self._numbers.setdefault(announcement, len(self._numbers))
        if number == len(self._versions):
            self._versions.append(fingerprint(message))
        relation = self._relations.setdefault(int.from_bytes(message[1:5], "big"), _Announced())
        if relation.numbers[-1:] != [number]:
            relation.arrivals.append(arrival)
            relation.numbers.append(number)

    def versions(self, relids: Ints, arrivals: Ints) -> Ints:
        """The relation version in force for each change, by its relid and its arrival; -1 where there is none."""
        numbers = np.full(len(relids), -1, np.int64)
        for relid in np.unique(relids).tolist():
            if relid in self._relations:
                of_it = relids == relid
                numbers[of_it] = self._relations[relid].number(arrivals[of_it])
        return np.array([*self._versions, -1], np.int64)[numbers]

    def given_out_whole(self, batch: MessageBatch) -> None:
        """Record that the batch was emitted unchanged, and that its announcements are the last ones that arrived."""
        for relid in np.unique(batch.naming(b"R")[1]).tolist():
            self._relations[relid].given_out = self._relations[relid].numbers[-1]

    def woven(self, messages: pa.Array, arrivals: Ints) -> Iterator[pa.Array]:
        """``messages``, about to be emitted, with announcements inserted where they are needed: before the first change
        or Truncate whose announcement in force is not the one that was emitted last."""
        needed = sorted(self._needed(MessageBatch.of(messages), arrivals))
        ends = [0, *(place for place, _ in needed), len(messages)]
        announcements = [None, *(number for _, number in needed)]
        by_number = list(self._numbers) if needed else []
        for number, (start, end) in zip(announcements, pairwise(ends), strict=True):
            if number is not None:
                yield pa.array(by_number[number], messages.type)
            yield messages[start:end]

    def _needed(self, batch: MessageBatch, arrivals: Ints) -> Iterator[tuple[int, int]]:
        """(place to insert before, number of the announcement)."""
        unsettled = [relid for relid, relation in self._relations.items() if not relation.settled]
        if not unsettled:
            return
        places, relids = _uses(batch)
        places, relids = (column[np.isin(relids, unsettled)] for column in (places, relids))
        for relid in np.unique(relids).tolist():
            relation = self._relations[relid]
            used = places[relids == relid]
            numbers = relation.number(arrivals[used])
            # a Relation message is a use, too, which needs no insertion: it is the announcement
            before = np.concatenate([[-1 if relation.given_out is None else relation.given_out], numbers[:-1]])
            for turn in np.flatnonzero((numbers != before) & (numbers >= 0) & (batch.kind[used] != ord("R"))).tolist():
                yield int(used[turn]), int(numbers[turn])
            relation.given_out = int(numbers[-1]) if numbers[-1] >= 0 else relation.given_out


def _uses(batch: MessageBatch) -> tuple[Ints, Ints]:
    """Where a relation is announced, changed or truncated, in order: the places and the relids."""
    places, relids = batch.naming(ROW_CHANGES + b"R")
    truncates = batch.where(b"T")
    if not len(truncates):
        return places, relids
    truncated = [_truncated(batch, at) for at in truncates.tolist()]
    places = np.concatenate([places, np.repeat(truncates, [len(each) for each in truncated])])
    order = np.argsort(places, kind="stable")
    return places[order], np.concatenate([relids, *truncated])[order]


def _truncated(batch: MessageBatch, place: int) -> Ints:
    relids = batch.messages[place].as_py()[6:]
    return np.frombuffer(relids[: len(relids) // 4 * 4], ">u4").astype(np.int64)
