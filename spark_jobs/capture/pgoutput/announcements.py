"""What the plugin has announced, and what the assembled transactions show of it.

The plugin announces a relation (Type messages, then a Relation message) before the change that first needs it, in the
order in which it sends: in a prepared transaction that is rolled back later, or in one that is committed after others
have used what it announced, or in a subtransaction that is aborted. So what is in force for a change is told by where
it *arrived*; in the order of commits an announcement is given out anew wherever another one was given out last.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.message_batch import MessageBatch
from spark_jobs.change_log.relation_versions import versions_in_force
from spark_jobs.logicalrep.relation import fingerprint

Ints = npt.NDArray[np.int64]
Versions = dict[int, int]  # by relid


class Announcements:
    """``announced``: by the connection, in the order of arrival. ``given_out``: in the order of commits."""

    def __init__(self) -> None:
        self.announced: Versions = {}
        self.given_out: Versions = {}
        self._messages: dict[int, tuple[bytes, ...]] = {}
        self._types: list[bytes] = []

    @property
    def all_given_out(self) -> bool:
        return self.announced == self.given_out

    def arrived(self, message: bytes) -> tuple[int, int] | None:
        """A Relation or Type message as protocol 1 has it; of a Relation message relid and version."""
        if message[:1] == b"Y":
            self._types.append(message)
            return None
        version = fingerprint(message)
        self._messages.setdefault(version, (*self._types, message))
        self._types.clear()
        return int.from_bytes(message[1:5], "big"), version

    def passing(self, batch: MessageBatch, at: Ints) -> list[tuple[int, int]]:
        """``at``: messages of plain transactions, about to be given out as they are. Returns (place in ``at``, version)
        of the announcements that must be given out before them."""
        kinds = batch.kind[at]
        relations = np.flatnonzero((kinds == ord("R")) | (kinds == ord("Y")))
        told = [(int(place), self.arrived(batch.messages[int(at[place])].as_py())) for place in relations]
        own: dict[int, int] = {}
        for place, relation in reversed(told):
            if relation is not None:
                own[relation[0]] = place
        needed = []
        if not self.all_given_out:
            uses = _Uses(batch, at)
            for relid, version in self.announced.items():
                if self.given_out.get(relid) != version:
                    used = uses.first(relid)
                    if used is not None and used < own.get(relid, len(at)):
                        needed.append((used, version))
                        self.given_out[relid] = version
        for _, relation in told:
            if relation is not None:
                self.announced[relation[0]] = self.given_out[relation[0]] = relation[1]
        return sorted(needed)

    def arriving(self, batch: MessageBatch, versions: Versions) -> tuple[Ints, int | None]:
        """Messages of a transaction that is held back. Returns per message the version in force, -1 where it is no row
        change; and a relation that was changed without being announced. ``versions`` is brought up to date."""
        at = np.flatnonzero((batch.kind == ord("R")) | (batch.kind == ord("Y")))
        told = {int(place): self.arrived(batch.messages[int(place)].as_py()) for place in at}
        relations = np.array([[place, *seen] for place, seen in told.items() if seen is not None], np.int64)
        places, relids, announced = relations.reshape(-1, 3).T
        changes = batch.where(b"IUD")
        changed = batch.uint32(changes, 1)
        found = np.full(batch.count, -1, np.int64)
        found[changes] = versions_in_force(versions, places, relids, announced, changes, changed)
        versions.update(zip(relids.tolist(), announced.tolist(), strict=True))
        missing = changed[found[changes] < 0]
        return found, int(missing[0]) if len(missing) else None

    def needed(self, batch: MessageBatch, versions: Ints, in_force: Versions) -> list[tuple[int, int]]:
        """Changes of a transaction that was held back, with the version in force for each (-1: none is needed), about
        to be given out; ``in_force`` at its end, for its Truncates. Returns as ``passing`` does."""
        changes = np.flatnonzero(versions >= 0)
        found: list[tuple[int, int]] = []
        relids = batch.uint32(changes, 1)
        order = np.argsort(relids, kind="stable")
        changes, relids, versions = changes[order], relids[order], versions[changes][order]
        firsts = np.diff(relids, prepend=-1) != 0
        turns = np.flatnonzero(firsts | (np.diff(versions, prepend=-1) != 0))
        for turn in turns:  # one per relation and DDL
            relid, version = int(relids[turn]), int(versions[turn])
            if self.given_out.get(relid) != version:
                self.given_out[relid] = version
                found.append((int(changes[turn]), version))
        uses = _Uses(batch, np.arange(batch.count))
        for relid in uses.truncated - self.given_out.keys():
            used = uses.first(relid)
            if used is not None and relid in in_force:
                self.given_out[relid] = in_force[relid]
                found.append((used, in_force[relid]))
        return sorted(found)

    def woven(self, messages: pa.Array, needed: list[tuple[int, int]]) -> Iterator[pa.Array]:
        """``messages`` with the announcements before the places that need them."""
        done = 0
        for place, version in needed:
            yield messages[done:place]
            yield pa.array(self._messages[version], messages.type)
            done = place
        yield messages[done:]


class _Uses:
    """Where the relations of changes and Truncates are used."""

    def __init__(self, batch: MessageBatch, at: Ints) -> None:
        kinds = batch.kind[at]
        short = batch.length[at] < 5
        self._changes = np.flatnonzero(np.isin(kinds, np.frombuffer(b"IUD", np.uint8)) & ~short)
        self._relids = batch.uint32(at[self._changes], 1)
        self._truncates: dict[int, int] = {}
        for place in np.flatnonzero(kinds == ord("T")):
            relids = batch.messages[int(at[place])].as_py()[6:]
            for relid in np.frombuffer(relids[: len(relids) // 4 * 4], ">u4"):
                self._truncates.setdefault(int(relid), int(place))

    @property
    def truncated(self) -> set[int]:
        return set(self._truncates)

    def first(self, relid: int) -> int | None:
        changes = self._changes[np.flatnonzero(self._relids == relid)[:1]]
        places = [*changes.tolist(), *([self._truncates[relid]] if relid in self._truncates else [])]
        return min(places, default=None)
