"""The change log's columns and row kinds: the plugin's messages, unparsed, each with its place in the total order."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class RowKind(StrEnum):
    """One character per row. The letters of changes are pgoutput's own message types.

    A message of a type that this version does not know is a row with that letter and without relid; the marker lists
    it.
    """

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"
    TRUNCATE = "T"  # one row per truncated relation, all with the message's ordinal
    MESSAGE = "M"  # pg_logical_emit_message
    RELATION = "R"
    TYPE = "Y"
    FACTS = "F"  # RelationFacts as JSON: the catalogue's description of one relation version
    CATALOGUE = "C"  # Fingerprint: one per followed table, where one of them has changed
    WINDOW = "W"  # WindowMarker as JSON: one per landed window, the log's own checkpoint


# window       ordinal of the window, 0 for the log's first marker, then 1, 2, 3 …
# commit_lsn   start of the transaction's commit record (Begin's final LSN); with ordinal the total order in one chapter
# ordinal      number of changes (I, U, D, T, M) before it in its transaction, whatever the plugin's options are;
#              RELATION and TYPE have the ordinal of the change after them; FACTS, CATALOGUE and WINDOW have -1
# xid          of the top-level transaction
# origin_lsn   where the origin committed the transaction; null if the plugin does not send it (streamed transactions)
# version      hash of the Relation message in force, set on changes, RELATION and FACTS rows; on TRUNCATE null
# data         the message, byte for byte; JSON for FACTS and WINDOW; word and JSON for CATALOGUE
CHANGE_LOG_SCHEMA = pa.schema(
    [
        pa.field("window", pa.int64(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("xid", pa.int64()),
        pa.field("commit_time", pa.timestamp("us", tz="UTC")),
        pa.field("origin", pa.string()),
        pa.field("origin_lsn", pa.int64()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("relid", pa.int64()),
        pa.field("version", pa.int64()),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
