"""The lines that the output plugin ``test_decoding`` writes, as frozen values; ``read_line`` reads them.

A line holds only what the plugin prints: names instead of OIDs, no typmods, no LSNs. What its options leave out
(``include-xids``, ``include-timestamp``) is None. Times are wire microseconds (see ``messages.commit_time``).
https://www.postgresql.org/docs/current/test-decoding.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """How a value is printed; this depends on its type (``print_literal`` in ``test_decoding.c``)."""

    NULL = "null"
    UNCHANGED_TOAST = "unchanged-toast-datum"
    NUMBER = "12"
    BOOLEAN = "true"
    BITS = "B'101'"
    QUOTED = "'text'"


@dataclass(frozen=True, slots=True)
class NamedValue:
    """One column of a row. ``text`` is the type's text output, without quotes; empty for NULL and UNCHANGED_TOAST.

    For a boolean that is ``t`` or ``f``, although the plugin prints ``true`` or ``false``. ``type_name`` is as
    ``format_type`` writes it, with schema and quotes where needed.
    """

    name: str
    type_name: str
    form: Form
    text: bytes = b""


Row = tuple[NamedValue, ...]
TableName = tuple[str, str]  # nspname, relname


@dataclass(frozen=True, slots=True)
class BeginLine:
    """``BEGIN 731``."""

    xid: int | None = None


@dataclass(frozen=True, slots=True)
class CommitLine:
    """``COMMIT 731 (at 2024-01-01 00:00:00+00)``."""

    xid: int | None = None
    commit_ts: int | None = None


class Phase(Enum):
    """What two-phase commit lines begin with."""

    PREPARE = "PREPARE TRANSACTION"
    COMMIT = "COMMIT PREPARED"
    ROLLBACK = "ROLLBACK PREPARED"


@dataclass(frozen=True, slots=True)
class TwoPhaseLine:
    """``PREPARE TRANSACTION 'gid', txid 731 (at …)``, ``COMMIT PREPARED …``, ``ROLLBACK PREPARED …``."""

    phase: Phase
    gid: str
    xid: int | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class RowLine:
    """``table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2``.

    ``kind`` is I, U or D. ``old`` is None if no old row is printed; ``new`` is None for a DELETE. The plugin may print
    ``(no-tuple-data)`` instead of a row; ``has_tuple_data`` is then false. Old rows leave out nulls.
    """

    kind: str
    table: TableName
    old: Row | None
    new: Row | None

    @property
    def has_tuple_data(self) -> bool:
        return (self.old if self.kind == "D" else self.new) is not None


@dataclass(frozen=True, slots=True)
class TruncateLine:
    """``table public.a, public.b: TRUNCATE: restart_seqs cascade``, or ``(no-flags)``."""

    tables: tuple[TableName, ...]
    restart_seqs: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class MessageLine:
    """``message: transactional: 1 prefix: app, sz: 2 content:hi``; the LSN comes with the line, not in it."""

    transactional: bool
    prefix: str
    content: bytes


class StreamEvent(Enum):
    """What the lines of ``stream-changes`` begin with. The plugin never prints the changes themselves."""

    OPEN = "opening a streamed block for transaction"
    CLOSE = "closing a streamed block for transaction"
    ABORT = "aborting streamed (sub)transaction"
    COMMIT = "committing streamed transaction"
    PREPARE = "preparing streamed transaction"
    CHANGE = "streaming change for"
    TRUNCATE = "streaming truncate for"


@dataclass(frozen=True, slots=True)
class StreamLine:
    """``streaming change for TXN 731``: ``gid`` on PREPARE; ``time`` on COMMIT and PREPARE."""

    event: StreamEvent
    xid: int | None = None
    gid: str | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class StreamMessageLine:
    """``streaming message: transactional: 1 prefix: app, sz: 2``; only a non-transactional one shows its content."""

    transactional: bool
    prefix: str
    size: int
    content: bytes | None


Line = BeginLine | CommitLine | TwoPhaseLine | RowLine | TruncateLine | MessageLine | StreamLine | StreamMessageLine
