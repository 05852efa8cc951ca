"""Messages of types that this version does not know: they are kept raw, with the relations they may be about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.change_log.window_marker import UnknownMessage

Ints = npt.NDArray[np.int64]


@dataclass
class _Sent:
    """The messages of one type in one transaction that have ``relid`` where a change has its relid."""

    kind: str
    relid: int
    first: int
    last: int


class UnknownMessages:
    """The messages of unknown type in one window. Which relations a transaction changes is known only at its end, so
    its messages wait until then."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, tuple[int, ...]], list[UnknownMessage]] = {}
        self._waiting: list[_Sent] = []
        self._changed: set[int] = set()

    @property
    def messages(self) -> tuple[UnknownMessage, ...]:
        """In order, the window's first and last message of each type and set of relations."""
        every = {message for pair in self._by_kind.values() for message in pair}
        return tuple(
            sorted(every, key=lambda message: (message.commit_lsn, message.ordinal, message.kind, message.relids))
        )

    def in_transaction(self, kinds: Ints, relids: Ints, ordinals: Ints, changed: Ints) -> None:
        """Add unknown messages of the open transaction, and relations that it changes."""
        for key in np.unique(kinds << 32 | relids):
            at = np.flatnonzero((kinds << 32 | relids) == key)
            self._waiting.append(_Sent(chr(key >> 32), int(key) & 0xFFFFFFFF, *map(int, ordinals[at[[0, -1]]])))
        self._changed.update(np.unique(changed).tolist())

    def end(self, commit_lsn: int, announced: set[int]) -> None:
        """End the open transaction; ``announced``: the relations announced in the window so far."""
        changed = tuple(sorted(self._changed))
        for message in self._waiting:
            relids = (message.relid,) if message.relid in announced else changed
            for ordinal in (message.first, message.last):
                self._add(UnknownMessage(message.kind, commit_lsn, ordinal, relids))
        self._waiting.clear()
        self._changed.clear()

    def outside(self, kind: str, commit_lsn: int) -> None:
        """Add a message outside any transaction: it may be about any relation."""
        self._add(UnknownMessage(kind, commit_lsn, 0, ()))

    def _add(self, message: UnknownMessage) -> None:
        pair = self._by_kind.setdefault((message.kind, message.relids), [message, message])
        pair[1] = message
