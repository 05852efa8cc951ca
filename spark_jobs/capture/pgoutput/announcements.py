"""Which relations the plugin has announced, and which announcements the assembled transactions must repeat.

The plugin announces a relation (Type messages, then a Relation message) before the change that first needs it, in the
order in which it sends. The announcement may stand in a prepared transaction that is rolled back later, in one that
commits after others have relied on it, or in a subtransaction that is aborted. So the relation version in force for a
change depends on where the change *arrived*. The assembled transactions come in commit order, so there an announcement
is repeated wherever the last one given out for its relation is another one.

What a streamed transaction announced counts for the whole connection once it commits, unless the connection has
announced the relation again in the meantime: it may have been altered after the stream rolled back to a savepoint and
so released its lock on it.
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
Arrivals = dict[int, int]  # by relid


class Announcements:
    """``announced``: the versions that the connection has announced so far. ``given_out``: the versions last given out,
    in commit order. ``arrivals``: how many messages had arrived before each announcement in ``announced``."""

    def __init__(self) -> None:
        self.announced: Versions = {}
        self.arrivals: Arrivals = {}
        self.given_out: Versions = {}
        self._messages: dict[int, tuple[bytes, ...]] = {}
        self._types: list[bytes] = []
        self._messages_before = 0  # that arrived before this batch

    @property
    def all_given_out(self) -> bool:
        return self.announced == self.given_out

    def batch_done(self, batch: MessageBatch) -> None:
        """To be called once all messages of the batch have been passed on or held back."""
        self._messages_before += batch.count

    def stream_committed(self, versions: Versions, arrivals: Arrivals) -> None:
        """The stream has committed: from here on the plugin does not repeat what the stream announced."""
        for relid, version in versions.items():
            if arrivals[relid] > self.arrivals.get(relid, -1):
                self.announced[relid], self.arrivals[relid] = version, arrivals[relid]

    def arrived(self, message: bytes) -> tuple[int, int] | None:
        """Note a Relation or Type message in protocol 1's form; returns a Relation message's relid and version."""
        if message[:1] == b"Y":
            self._types.append(message)
            return None
        version = fingerprint(message)
        self._messages.setdefault(version, (*self._types, message))
        self._types.clear()
        return int.from_bytes(message[1:5], "big"), version

    def passing(self, batch: MessageBatch, at: Ints) -> list[tuple[int, int]]:
        """The announcements that must be repeated among the messages ``at`` of plain transactions, which are about to
        be given out as they are: (place in ``at`` to insert before, version), in order."""
        kinds = batch.kind[at]
        relations = np.flatnonzero((kinds == ord("R")) | (kinds == ord("Y")))
        arrived = [(int(place), self.arrived(batch.messages[int(at[place])].as_py())) for place in relations]
        own: dict[int, int] = {}
        for place, relation in reversed(arrived):
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
        for place, relation in arrived:
            if relation is not None:
                self.announced[relation[0]] = self.given_out[relation[0]] = relation[1]
                self.arrivals[relation[0]] = self._messages_before + int(at[place])
        return sorted(needed)

    def arriving(
        self, batch: MessageBatch, arrived_at: Ints, versions: Versions, arrivals: Arrivals
    ) -> tuple[Ints, int | None]:
        """Note the messages of a transaction that is held back; ``arrived_at``: their places in the batch they came in.

        Returns the version in force for each message (-1 where it is no row change), and the relid of a change without
        an announcement, if there is one. Updates ``versions`` and ``arrivals``.
        """
        at = np.flatnonzero((batch.kind == ord("R")) | (batch.kind == ord("Y")))
        arrived = {int(place): self.arrived(batch.messages[int(place)].as_py()) for place in at}
        relations = np.array([[place, *seen] for place, seen in arrived.items() if seen is not None], np.int64)
        places, relids, announced = relations.reshape(-1, 3).T
        changes = batch.where(b"IUD")
        changed = batch.uint32(changes, 1)
        in_force = np.full(batch.count, -1, np.int64)
        in_force[changes] = versions_in_force(versions, places, relids, announced, changes, changed)
        versions.update(zip(relids.tolist(), announced.tolist(), strict=True))
        arrivals.update(zip(relids.tolist(), (self._messages_before + arrived_at[places]).tolist(), strict=True))
        missing = changed[in_force[changes] < 0]
        return in_force, int(missing[0]) if len(missing) else None

    def needed(self, batch: MessageBatch, versions: Ints, in_force: Versions) -> list[tuple[int, int]]:
        """The announcements that a transaction needs that was held back and is about to be given out; returned as by
        ``passing``. ``versions``: the version in force for each message, -1 where none is needed. ``in_force``: the
        versions at the transaction's end, for its Truncates."""
        changes = np.flatnonzero(versions >= 0)
        needed: list[tuple[int, int]] = []
        relids = batch.uint32(changes, 1)
        order = np.argsort(relids, kind="stable")
        changes, relids, versions = changes[order], relids[order], versions[changes][order]
        firsts = np.diff(relids, prepend=-1) != 0
        turns = np.flatnonzero(firsts | (np.diff(versions, prepend=-1) != 0))
        for turn in turns:  # one per relation and DDL
            relid, version = int(relids[turn]), int(versions[turn])
            if self.given_out.get(relid) != version:
                self.given_out[relid] = version
                needed.append((int(changes[turn]), version))
        uses = _Uses(batch, np.arange(batch.count))
        for relid in uses.truncated - self.given_out.keys():
            used = uses.first(relid)
            if used is not None and relid in in_force:
                self.given_out[relid] = in_force[relid]
                needed.append((used, in_force[relid]))
        return sorted(needed)

    def woven(self, messages: pa.Array, needed: list[tuple[int, int]]) -> Iterator[pa.Array]:
        """``messages``, with each announcement inserted before the place that needs it."""
        done = 0
        for place, version in needed:
            yield messages[done:place]
            yield pa.array(self._messages[version], messages.type)
            done = place
        yield messages[done:]


class _Uses:
    """Where changes and Truncates first use each relation."""

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
