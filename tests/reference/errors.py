"""Faults of messages in their places::

LogicalRepError
└── AssemblyError           each message is valid, but not in this place
    ├── MessageOrderError          no server sends the messages in this order
    ├── UnannouncedRelationError   a change without a Relation message before it
    ├── MissingTransactionError    a COMMIT PREPARED, or the end of a stream, without its changes
    └── AmbiguousMessageError      a streamed Message that may belong to an aborted subtransaction
"""

from __future__ import annotations

from spark_jobs.logicalrep.errors import LogicalRepError


class AssemblyError(LogicalRepError):
    """Every message is valid by itself, but not in its place."""


class MessageOrderError(AssemblyError):
    """No server sends the messages in this order."""


class UnannouncedRelationError(AssemblyError):
    """A change comes before the Relation message that describes it."""


class MissingTransactionError(AssemblyError):
    """A transaction is committed whose changes are not among the messages."""


class AmbiguousMessageError(AssemblyError):
    """A streamed transactional Message may belong to an aborted subtransaction; the protocol does not say."""
