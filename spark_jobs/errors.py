"""The one error tree. Every message is one line: what, where, which LSN. What to do is the hint, a line of its own.

::

    CdcError                    exit code 1
    ├── ConfigurationError      exit code 2: the file, an option, the environment
    ├── SourceError             PostgreSQL refused, or cannot be reached
    │   ├── SourceUnreachableError   no connection, wrong password
    │   │   ├── SourceBusyError      the server is starting, or has no connection to spare
    │   │   └── ConnectionLostError  an open connection was lost
    │   ├── PreconditionError   wal_level, privileges, publication, replica identity, free slots
    │   ├── SlotError           the slot is lost, or of another kind
    │   │   └── SlotInUseError      another session reads it
    │   ├── SnapshotWaitsError  a snapshot waits for a transaction that is open: the next run takes it
    │   └── AlteredWhileReadError  the table was altered while its snapshot was read
    ├── GapError                changes between two LSNs are missing, in the slot or in the change log
    │   └── BreakError          the slot does not continue the change log: `postgres-cdc recover`
    ├── DecodeError             the change log holds something that is not understood
    ├── UnrepresentableError    a value that the lake type cannot hold
    ├── NeedsSnapshotError      the landed changes do not lead from the Delta table to the source: a new snapshot does
    │   ├── SchemaChangeError   the source table no longer fits the Delta table
    │   └── OtherModeError      the table is in another mode than configured
    ├── RefusedChangeError      a change of the source table that the configuration refuses
    ├── LakeError               the lake cannot be read or written
    │   ├── LakeInUseError      another process is writing the table
    │   └── OvertakenError      another writer has committed to the table since its state was read
    ├── SpoolError              this machine's temporary files cannot be written or read
    └── SparkError              no Java, no jars, no session

Messages never hold cell values or connection strings. Whatever text they include, from a library for example, becomes
one plain line: without line breaks, colours and other control characters, and without the signature of a signed URL.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

# ECMA-48: CSI sequences (colours), OSC sequences (links, titles), two-character ones
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# C0 and C1, line and paragraph separators, and characters that reverse the direction of a line
_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
CONTROLS = re.compile(f"[{_CONTROLS}]")
# with the spaces around them; spaces alone stay: a hint may name a table with two of them
_BREAKS = re.compile(f"(?<! ) *[{_CONTROLS}][ {_CONTROLS}]*")
# of URLs that stand for a key: Arrow names them in its errors
_SIGNATURES = re.compile(r"\b(sig|x-amz-signature|x-goog-signature|x-amz-security-token)=[^&\s'\"<>/]+", re.IGNORECASE)


def one_line(text: str) -> str:
    """Without escape sequences and signatures of URLs; each run of control characters and direction marks, with the
    spaces around it, becomes one space."""
    return _SIGNATURES.sub(r"\1=…", _BREAKS.sub(" ", _ESCAPES.sub("", text))).strip()


def first_line(error: Exception) -> str:
    """Of its message, which is safe to show, as lines with rows may follow it; or what kind it is."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def new_snapshot(table: object = "schema.table") -> str:
    """The hint that names the command, quoted for a shell. ``table``: a QualifiedName, or a name as it prints one."""
    quoted = str(table).replace("'", "'\\''")
    return f"take a new snapshot of this table: postgres-cdc snapshot --table '{quoted}'"


def corrected_value(table: str) -> str:
    """The hint for a value of ``table`` that the lake cannot hold. A mirror needs only a row's last values."""
    return (
        "correct the row at the source, and sync again. Where the old value counts, too, as in modes that keep what has"
        f" been, {new_snapshot(table)}"
    )


class CdcError(Exception):
    """Something a user has to know: ``what`` happened, and in ``hint`` what to do."""

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        self.what, self.hint = one_line(what), one_line(hint)
        super().__init__(self.what, self.hint)

    def __str__(self) -> str:
        """One line, for logs and inside other sentences."""
        return f"{self.what}: {self.hint}" if self.hint else self.what

    @property
    def lines(self) -> str:
        """For a person: what happened, and the hint on a line of its own."""
        return f"{self.what}\nhint: {self.hint}" if self.hint else self.what

    def within(self, where: str) -> Self:
        """The same error, its message beginning with ``where``."""
        return type(self)(f"{where}: {self.what}", hint=self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments: an executor's error must survive pickling
        return _rebuild, (type(self), self.what, self.hint)


def _rebuild(kind: type[CdcError], what: str, hint: str) -> CdcError:
    return kind(what, hint=hint)


class ConfigurationError(CdcError):
    """The configuration file, a command-line option or the environment is wrong; nothing was touched."""

    exit_code = 2


class SourceError(CdcError):
    """PostgreSQL refused a statement."""


class SourceUnreachableError(SourceError):
    """No connection to PostgreSQL could be made, or a connection was lost."""


class SourceBusyError(SourceUnreachableError):
    """PostgreSQL accepts no connection now: it is starting, or all connections are taken."""


class ConnectionLostError(SourceUnreachableError):
    """An open connection to PostgreSQL was lost."""


class PreconditionError(SourceError):
    """The source is not set up for logical decoding of these tables."""


class SlotError(SourceError):
    """The replication slot cannot be used."""


class SlotInUseError(SlotError):
    """Another session reads the replication slot."""


class SnapshotWaitsError(SourceError):
    """A snapshot cannot be taken before somebody else's transaction has ended. Nothing is wrong: the table waits, and
    nothing else has to wait with it."""


class SnapshotGoesOnError(SnapshotWaitsError):
    """A part of a large table's snapshot is read; the next run reads the rest."""


class AlteredWhileReadError(SourceError):
    """DDL may have hidden rows from a snapshot, or given the names of columns to others. Raised on executors, too."""


class GapError(CdcError):
    """Changes between two LSNs are missing; going on would lose them silently."""


RECOVER = "`postgres-cdc recover --config FILE` begins a new chapter of the change log and re-snapshots the tables"


class BreakError(GapError):
    """The slot does not continue the change log. ``spark_jobs.recover`` begins a new chapter of the log for each error
    of this kind, and for no other."""

    def __init__(self, what: str, *, hint: str = RECOVER) -> None:
        super().__init__(what, hint=hint)


class DecodeError(CdcError):
    """The change log holds something that is not understood."""


class UnrepresentableError(CdcError):
    """A value has no exact counterpart in the lake type of its column."""


class NeedsSnapshotError(CdcError):
    """The landed changes do not lead from the Delta table's state to the source's. A new snapshot does; ``sync`` takes
    it without a command."""

    @classmethod
    def because(cls, table: object, why: str) -> Self:
        """Of ``table``: ``why`` it has to be read again."""
        hint = f"`postgres-cdc sync` re-snapshots it by itself; else {new_snapshot(table)}"
        return cls(f"{table} needs a re-snapshot: {why}", hint=hint)


def why_read(table: object, reason: str) -> str:
    """Of a table that has been read again: the reason, if it is the sentence that said that this was needed."""
    return reason.removeprefix(f"{table} needs a re-snapshot: ")


class SchemaChangeError(NeedsSnapshotError):
    """The source table has changed in a way that cannot be applied in place."""


class OtherModeError(NeedsSnapshotError):
    """The table is in another mode than configured. The change log may be enough to rebuild it."""


class RefusedChangeError(CdcError):
    """The source table's columns changed, and ``on_schema_change`` says that the table stops then."""


class LakeError(CdcError):
    """The lake cannot be read or written."""


class StorageBusyError(LakeError):
    """The lake's storage is too busy to answer. Its client has asked several times; a minute later it may answer."""


class LakeInUseError(LakeError):
    """Another process is writing the Delta table."""


class OvertakenError(LakeError):
    """Another writer has committed to the table since its state was read. Nothing was written; read the state again."""


class SpoolError(CdcError):
    """A transaction without its end so far cannot be kept in this machine's temporary files."""


class SparkError(CdcError):
    """There is no usable Spark session."""
