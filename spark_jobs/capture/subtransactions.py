"""Which subtransactions have sent a TRUNCATE: the catalogue names them, and whole transactions do not.

A TRUNCATE behind a savepoint, or in a block with an exception handler, gives the table a new file in the name of its
subtransaction, while the slot sends it in the name of the transaction. PostgreSQL says which belongs to which only when
it streams a transaction that is still open. So where both have been seen, the window is read again as a stream.
"""

from __future__ import annotations

from spark_jobs.logicalrep.lsn import Window
from spark_jobs.logicalrep.messages import Streamed, Truncate
from spark_jobs.logicalrep.pgoutput.read_message import read_streamed_message
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.slot import Options, UnmappedFileError, peek_in_streams

_STREAM_START, _TRUNCATE = b"S", b"T"
_KEPT = ("publication_names", "origin")


def truncating_subtransactions(
    control: Connection, slot: str, window: Window, options: Options
) -> set[tuple[int, int]]:
    """Table and subtransaction of each TRUNCATE that was sent in a stream. ``options``: those of pgoutput that the slot
    is read with; without its publications there is nothing to read with, and none is found. Nor is any if the server
    cannot stream the window: then the new file remains unexplained, and its table is read again."""
    kept = tuple(option for option in options if option[0] in _KEPT)
    if not any(name == "publication_names" for name, _ in kept):
        return set()
    streaming = (("proto_version", "2"), ("streaming", "on"), *kept)
    truncates: set[tuple[int, int]] = set()
    try:
        messages = peek_in_streams(control, slot, window, streaming, kinds="T")
    except UnmappedFileError:
        return truncates
    in_stream = False
    for data in messages:
        if data[:1] != _TRUNCATE:
            in_stream = data[:1] == _STREAM_START
        elif in_stream:
            message = read_streamed_message(data)
            assert isinstance(message, Streamed)
            if isinstance(message.message, Truncate):
                truncates |= {(relid, message.xid) for relid in message.message.relids}
    return truncates
