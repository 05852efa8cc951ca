"""What assembly gives: committed transactions, and Messages of none; and the options a window is read with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import DataMessage, LogicalMessage

Streaming = Literal["off", "on", "parallel"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of the plugin that change which messages come."""

    proto_version: int = 1
    streaming: Streaming = "off"
    two_phase: bool = False


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """``ordinal``: how many changes (I, U, D, T, M) stand before it. ``data``: its bytes as protocol 1 sends them."""

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
    """A Message that is not transactional: it counts where it was emitted, whatever became of its transaction."""

    data: bytes
    message: LogicalMessage
