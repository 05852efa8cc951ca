"""The output of ``assembly``: committed transactions and non-transactional Messages; and the options it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import DataMessage, LogicalMessage

Streaming = Literal["off", "on", "parallel"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of the plugin that change which messages it sends."""

    proto_version: int = 1
    streaming: Streaming = "off"
    two_phase: bool = False


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """``ordinal``: how many changes (I, U, D, T, M) precede it. ``data``: its bytes in protocol 1's form."""

    ordinal: int
    data: bytes
    message: DataMessage


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction. ``xid`` is the top-level one; ``gid`` is set if it came as a prepared transaction."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_ts: int
    xid: int
    origin: str | None
    origin_lsn: Lsn | None
    gid: str | None
    changes: tuple[PlacedMessage, ...]


@dataclass(frozen=True, slots=True)
class LooseMessage:
    """A non-transactional Message: it counts even if the transaction that emitted it is rolled back."""

    data: bytes
    message: LogicalMessage
