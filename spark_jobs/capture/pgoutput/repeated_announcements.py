"""Leaves out announcements that say what is in force already, so that rows do not depend on how a window was read.

The plugin announces a relation (Type messages, then a Relation message) again after anything that made the server look
at it anew, such as a VACUUM, and each read of the slot starts with no announcement. What is left out here is equal,
byte for byte, to the relation's last announcement in the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from spark_jobs.capture.message_batch import ANNOUNCEMENTS, MessageBatch

_TYPE = ord("Y")


class RepeatedAnnouncements:
    """The announcements of one window, whose messages are in protocol 1's form."""

    def __init__(self) -> None:
        self._in_force: dict[bytes, tuple[bytes, ...]] = {}  # by relid, as in the message

    def left_out(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, of one binary column, without repeated announcements. Python runs per announcement."""
        waiting: pa.Array | None = None  # Type messages at a batch's end: their Relation message is in the next
        for batch in batches:
            if waiting is not None:
                joined = pa.concat_arrays([waiting, batch.column(0).cast(waiting.type)])
                batch, waiting = _batch(joined), None
            messages = MessageBatch.of(batch.column(0))
            announcing = messages.where(ANNOUNCEMENTS)
            if not len(announcing):
                yield batch
                continue
            repeated, types = self._repeated(messages, announcing.tolist())
            is_kept = np.ones(messages.count, bool)
            is_kept[repeated] = False
            end = messages.count
            if types and types[-1] == end - 1:
                end = types[0]
                waiting = messages.messages[end:]
            yield (
                batch
                if is_kept.all() and end == messages.count
                else _batch(messages.messages[:end].filter(pa.array(is_kept[:end])))
            )
        if waiting is not None:
            yield _batch(waiting)

    def _repeated(self, messages: MessageBatch, announcing: list[int]) -> tuple[list[int], list[int]]:
        """Which messages to leave out, and the Type messages that no Relation message has followed yet."""
        repeated: list[int] = []
        types: list[int] = []
        for at in announcing:
            if types and at != types[-1] + 1:
                types = []
            if messages.kind[at] == _TYPE:
                types.append(at)
                continue
            announcement = tuple(messages.messages[place].as_py() for place in (*types, at))
            relid = announcement[-1][1:5]
            if self._in_force.get(relid) == announcement:
                repeated += [*types, at]
            self._in_force[relid] = announcement
            types = []
        return repeated, types


def _batch(messages: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([messages], names=["data"])
