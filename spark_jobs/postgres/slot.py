"""The replication slot: the only file that names PostgreSQL's slot functions.

Only ``advance_slot`` moves the durable slot. It is read through a temporary copy, or peeked at.
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-REPLICATION
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import psycopg
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from psycopg import sql

from spark_jobs.errors import (
    RECOVER,
    BreakError,
    CdcError,
    ConnectionLostError,
    PreconditionError,
    SlotError,
    SourceError,
)
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.bulk_read import run, streamed
from spark_jobs.postgres.connection import Connection, source_error, source_errors
from spark_jobs.postgres.open_transactions import oldest_transaction
from spark_jobs.postgres.provider import provider_of
from spark_jobs.postgres.session_settings import ENCODING_OF_ROWS

_log = logging.getLogger(__name__)

_NO_PUBLICATION = re.compile('publication ".*" does not exist')

Options = tuple[tuple[str, str], ...]  # (name, value) of the output plugin's options
Output = Literal["binary", "text"]


# the slot of a REPACK (CONCURRENTLY), since PostgreSQL 19, counts against max_repack_replication_slots instead
SPARE_SLOTS = """current_setting('max_replication_slots')::int - (
    SELECT count(*)::int FROM pg_catalog.pg_replication_slots WHERE plugin IS DISTINCT FROM 'pgrepack')"""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A row of ``pg_replication_slots``. A physical slot has no ``plugin``, ``database`` and ``confirmed_flush_lsn``.
    ``safe_wal_size``: bytes of WAL left before the slot is in danger, None for no limit. ``is_synced``: a standby's
    copy of a slot of its primary. ``awaits``: slots of standbys that are away and lack WAL that the server would not
    send before they have it."""

    slot_name: str
    plugin: str | None
    database: str | None = None
    two_phase: bool
    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None
    safe_wal_size: int | None
    invalidation_reason: str | None
    is_synced: bool = False
    awaits: tuple[str, ...] = ()

    @property
    def lsn(self) -> Lsn:
        """The ``confirmed_flush_lsn`` of a slot that can be read, such as ``readable_slot`` returns."""
        assert self.confirmed_flush_lsn is not None
        return self.confirmed_flush_lsn


# through jsonb, because columns depend on the version: failover, synced, invalidation_reason since 17, conflicting 16
_SLOT = """
SELECT plugin::text, database::text, two_phase, active_pid, confirmed_flush_lsn::text, restart_lsn::text, wal_status,
       safe_wal_size,
       coalesce(to_jsonb(s)->>'invalidation_reason',
                CASE to_jsonb(s)->>'conflicting' WHEN 'true' THEN 'conflicting' END,
                CASE wal_status WHEN 'lost' THEN 'wal_removed' END),
       coalesce(to_jsonb(s)->>'synced' = 'true', false),
       ARRAY(SELECT w.name
             FROM unnest(string_to_array(
               replace(current_setting('synchronized_standby_slots', true), ' ', ''), ',')) AS w(name)
             LEFT JOIN pg_catalog.pg_replication_slots p ON p.slot_name = w.name
             WHERE to_jsonb(s)->>'failover' = 'true' AND w.name ~ '^[a-z0-9_]+$' AND NOT coalesce(p.active, false)
               AND CASE WHEN pg_is_in_recovery() THEN false
                        ELSE coalesce(p.restart_lsn < pg_current_wal_flush_lsn(), true) END)
FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s
"""
# as in sessions of bulk reads, for one transaction
_LIKE_BULK = (
    "SELECT pg_catalog.set_config('statement_timeout', '0', true),"
    f" pg_catalog.set_config('client_encoding', {ENCODING_OF_ROWS}, true)"
)


def find_slot(connection: Connection, slot: str) -> Slot | None:
    """The slot of this name, whatever its kind, database and state."""
    with source_errors(f"slot {slot} could not be looked up"):
        row = connection.execute(_SLOT, [slot]).fetchone()
    if row is None:
        return None
    plugin, database, two_phase, active_pid, confirmed, restart, wal_status, safe, reason, is_synced, awaits = row
    return Slot(
        slot_name=slot,
        plugin=plugin,
        database=database,
        two_phase=bool(two_phase),
        active_pid=active_pid,
        confirmed_flush_lsn=Lsn.parse(confirmed) if confirmed else None,
        restart_lsn=Lsn.parse(restart) if restart else None,
        wal_status=wal_status,
        safe_wal_size=safe,
        invalidation_reason=reason,
        is_synced=is_synced,
        awaits=tuple(awaits),
    )


def readable_slot(connection: Connection, slot: str) -> Slot | None:
    """The slot of this name; None when there is none. Raises SlotError when it is physical or belongs to another
    database, BreakError when the server has invalidated it."""
    found = find_slot(connection, slot)
    if found is not None:
        require_logical(found, connection.info.dbname)
        require_not_lost(found)
    return found


def require_logical(slot: Slot, database: str) -> None:
    """Raises SlotError when the slot is physical or belongs to another database."""
    if slot.plugin is None:
        raise SlotError(
            f"slot {slot.slot_name} is a physical slot, which no pipeline reads",
            hint="choose another name for source.slot",
        )
    if slot.database != database:
        raise SlotError(
            f"slot {slot.slot_name} belongs to database {slot.database}, the connection is to {database}",
            hint="correct the database in source.dsn, or choose another name for source.slot",
        )


def require_plugin(slot: Slot, plugin: str) -> None:
    """Raises SlotError when the slot uses another plugin."""
    if slot.plugin != plugin:
        raise SlotError(
            f"slot {slot.slot_name} uses the output plugin {slot.plugin}, the configuration says {plugin}",
            hint="correct source.plugin (pgoutput and test_decoding are read), or choose another name for source.slot",
        )


def require_standbys(slot: Slot) -> None:
    """Raises SlotError while the server would let a read of the slot wait, without a word, for a standby that is
    away."""
    if (away := standby_away(slot)) is not None:
        raise away


def standby_away(slot: Slot) -> SlotError | None:
    """The error that names a standby that the slot awaits, and that is away; None if there is none.

    https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONIZED-STANDBY-SLOTS
    """
    if not slot.awaits:
        return None
    return SlotError(
        f"slot {slot.slot_name} sends nothing before the standby of slot {', '.join(slot.awaits)} has received it,"
        " and that standby is not connected",
        hint="start the standby, or take its slot out of the server's setting synchronized_standby_slots",
    )


def require_not_lost(slot: Slot) -> None:
    """Raises BreakError when the server has invalidated the slot."""
    if slot.wal_status == "lost" or slot.confirmed_flush_lsn is None:
        reason = slot.invalidation_reason or "wal_removed"
        raise BreakError(f"slot {slot.slot_name} is lost: the server has invalidated it ({reason})")


def create_slot(connection: Connection, slot: str, *, plugin: str, failover: bool = False) -> Slot:
    """Create the durable slot, and return it. Waits for the transactions that are open now.

    The slot is never two-phase: such a slot sends a prepared transaction only at PREPARE, so a window would not hold
    what is committed in it. A copy can still be read with ``two_phase``. ``failover`` (since PostgreSQL 17): standbys
    keep a copy of the slot.

    Raises PreconditionError for wal_level, a missing privilege or plugin, or when no slot is free; SlotError when open
    transactions do not end in time.
    """
    if (oldest := oldest_transaction(connection)) is not None:
        _log.warning("slot %s is created when the open transactions have ended; the oldest is %s", slot, oldest)
    try:
        # the server waits for those transactions on locks; only statement_timeout shall limit that
        connection.execute("SELECT set_config('lock_timeout', '0', false)")
        more = ", failover => true" if failover else ""
        create = f"SELECT pg_create_logical_replication_slot(%s, %s, false{more})"
        connection.execute(create, [slot, plugin])
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise PreconditionError(
            f"slot {slot} cannot be created: {error.diag.message_primary}",
            hint=error.diag.message_hint or provider_of(connection).turn_on_decoding(),
        ) from None
    except psycopg.errors.UndefinedFile as error:
        raise PreconditionError(f"the server has no output plugin {plugin}: {error.diag.message_primary}") from None
    except psycopg.errors.QueryCanceled as error:
        raise _not_created_in_time(connection, slot, error.diag.message_primary or "") from None
    except psycopg.Error as error:
        raise source_error(error, f"slot {slot} cannot be created") from None
    created = readable_slot(connection, slot)
    if created is None:
        raise SlotError(f"slot {slot} was dropped while it was being created", hint="run it again")
    return created


def _not_created_in_time(connection: Connection, slot: str, message: str) -> SlotError:
    what, oldest = f"slot {slot} could not be created in time ({message})", oldest_transaction(connection)
    if oldest is None:
        return SlotError(what, hint="run it again")
    return SlotError(f"{what}: the transaction {oldest} must end first", hint=oldest.way_to_end)


def advance_slot(connection: Connection, slot: str, lsn: Lsn) -> Lsn:
    """Advance the durable slot to ``lsn``; everything before must be durable elsewhere. Returns where the slot stands.

    A slot at or past ``lsn`` is left alone. The server may advance a few bytes past ``lsn``, to the end of a record.
    Raises SlotError when there is no such slot, and SourceError.
    """
    found = readable_slot(connection, slot)
    if found is None:
        raise missing_slot(slot)
    if found.lsn >= lsn:
        return found.lsn
    with source_errors(f"slot {slot} could not be moved to {lsn}"):
        row = connection.execute(
            "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)", [slot, str(lsn)]
        )
        return Lsn.parse(row.fetchall()[0][0])


def peek_in_streams(connection: Connection, slot: str, window: Window, options: Options, kinds: str) -> list[bytes]:
    """The messages of these ``kinds`` up to the window's end, with the stream blocks around them, because only these
    name subtransactions. From PostgreSQL 16 on every transaction is streamed, before only those of 64 kB and more. The
    slot is not moved. Raises SourceError."""
    setting = ("debug_logical_replication_streaming", "immediate")
    if connection.info.server_version < 160000:
        setting = ("logical_decoding_work_mem", "64kB")
    arguments = [slot, str(window.hi), *(word for option in options for word in option), list(map(ord, f"{kinds}SE"))]
    placed = ", ".join(["%s"] * (len(arguments) - 3))
    query = f"""
        SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, {placed})
        WITH ORDINALITY AS read(lsn, xid, data, place) WHERE get_byte(data, 0) = ANY (%s) ORDER BY place"""  # noqa: S608
    with window_errors(slot, window), source_errors("its streams could not be read"), connection.transaction():
        connection.execute("SELECT set_config(%s, %s, true)", setting)
        return [bytes(row[0]) for row in connection.execute(query, arguments)]


def drop_slot(connection: Connection, slot: str) -> None:
    """Drop the durable slot; the server may then remove the WAL that it held."""
    with source_errors(f"slot {slot} could not be dropped"):
        connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def drop_lost_slot(connection: Connection, slot: str, plugin: str) -> bool:
    """Drop a slot that the server has invalidated; returns whether it was a failover slot. Raises SlotError unless it
    is an invalidated slot of ``plugin`` in this database."""
    query = """
        SELECT coalesce(to_jsonb(s)->>'failover' = 'true', false), pg_drop_replication_slot(slot_name)
        FROM pg_catalog.pg_replication_slots s
        WHERE slot_name = %s AND plugin = %s AND database = current_database() AND wal_status = 'lost'"""
    with source_errors(f"slot {slot} could not be dropped"):
        dropped = connection.execute(query, [slot, plugin]).fetchall()
    if not dropped:
        raise SlotError(
            f"slot {slot} is not an invalidated slot of the output plugin {plugin}",
            hint="correct source.plugin, or choose another name for source.slot",
        )
    return bool(dropped[0][0])


def without(options: Options, name: str) -> Options:
    return tuple(option for option in options if option[0] != name)


def missing_slot(slot: str) -> SlotError:
    return SlotError(
        f"there is no slot {slot}", hint=f"`postgres-cdc sync` makes it; where there is a change log: {RECOVER}"
    )


def spare_slots(connection: Connection) -> int:
    """How many more slots the server has room for."""
    with source_errors("the free slots could not be counted"):
        return int(connection.execute(f"SELECT {SPARE_SLOTS}").fetchall()[0][0])


@contextmanager
def read_window(
    bulk: dbapi.Connection,
    slot: str,
    window: Window,
    options: Options,
    *,
    through: Literal["copy", "peek"] = "copy",
    output: Output = "binary",
) -> Iterator[pa.RecordBatchReader]:
    """The plugin's messages of one window, in order, as Arrow batches with one binary column, ``data``.

    For a plugin whose ``output`` is ``text``, the columns are ``lsn`` (int64) and ``data`` (string), one row per line.
    Raises SlotError when the slot's plugin has the other kind of output.

    ``copy`` reads a temporary copy of the slot, which ends with this connection. It needs a free slot (raises
    NoSpareSlotError without one), and the slot may stand anywhere at or before ``window.lo``. ``peek`` reads the slot
    itself without moving it. The caller must have checked that the slot stands exactly at ``window.lo`` and is not
    two-phase. A peek drops the option ``two_phase``, which would make the slot itself two-phase for good; prepared
    transactions are then sent as ordinary ones.
    """
    with window_errors(slot, window):
        if through == "copy":
            with read_copy(bulk, slot, window, options, output) as reader:
                yield reader
        else:
            query = _changes_query("peek", slot, window.hi, without(options, "two_phase"), output)
            with _binary_output(slot), streamed(bulk, query) as reader:
                yield reader


def peek_few(connection: Connection, slot: str, window: Window, options: Options) -> pa.RecordBatch:
    """As ``read_window`` by a peek, of a plugin with binary output, where few messages are to be expected: all are
    fetched at once, and no bulk connection is needed, which costs more than they do."""
    query = _changes_query("peek", slot, window.hi, without(options, "two_phase"), "binary")
    with (
        window_errors(slot, window),
        _binary_output(slot),
        source_errors("PostgreSQL refused"),
        connection.transaction(),
    ):
        connection.execute(_LIKE_BULK)
        rows = connection.execute(query.encode(), binary=True).fetchall()
    return pa.record_batch({"data": pa.array([data for (data,) in rows], pa.binary())})


class UnmappedFileError(SourceError):
    """The server does not find the table of a change in a transaction that it streams: before it, DDL on that table was
    rolled back to a savepoint. Without streaming it does."""

    option = "streaming"


@contextmanager
def window_errors(slot: str, window: Window) -> Iterator[None]:
    """Name the window in the server's errors."""
    try:
        yield
    except SourceError as error:
        raise _unreadable(error).within(f"window {window} of slot {slot}") from None


def _unreadable(error: SourceError) -> CdcError:
    """Up to PostgreSQL 17, changes written while the publication did not exist cannot be decoded: a break."""
    if _NO_PUBLICATION.search(error.what):
        return BreakError(f"changes were made while the publication was missing ({error.what})")
    return UnmappedFileError(error.what) if "could not map filen" in error.what else error


@contextmanager
def read_copy(
    bulk: dbapi.Connection, slot: str, window: Window, options: Options, output: Output = "binary"
) -> Iterator[pa.RecordBatchReader]:
    """``read_window`` through a copy, for use within ``window_errors``."""
    copy = f"pgcdc_{secrets.token_hex(8)}"
    _make_copy(bulk, slot, copy)
    try:
        _place_copy(bulk, copy, window.lo)
        query = _changes_query("get", copy, window.hi, options, output)
        with _binary_output(slot), streamed(bulk, query) as reader:
            yield reader
    finally:
        # at once, so that the next window finds a free slot; if the connection is lost, the copy is gone already
        with suppress(ConnectionLostError):
            _drop_copy(bulk, copy)


def _place_copy(bulk: dbapi.Connection, copy: str, lsn: Lsn) -> None:
    """Advance the copy to ``lsn``, unless it already stands there: even then, the server would decode everything from
    the slot's ``restart_lsn``, which in a backlog can be a gigabyte behind."""
    statement = """
        SELECT pg_replication_slot_advance(slot_name, {}::pg_lsn) FROM pg_replication_slots
        WHERE slot_name = {} AND confirmed_flush_lsn <> {}::pg_lsn"""
    run(bulk, _text(statement, str(lsn), copy, str(lsn)))


class NoSpareSlotError(PreconditionError):
    """All max_replication_slots are in use, so that there is none for a temporary copy."""


def _make_copy(bulk: dbapi.Connection, slot: str, copy: str) -> None:
    try:
        run(bulk, _text("SELECT 1 FROM pg_copy_logical_replication_slot({}, {}, true)", slot, copy))
    except SourceError as error:
        if "all replication slots are in use" in error.what:
            raise NoSpareSlotError(
                f"no slot is free for a temporary copy of {slot}", hint="raise max_replication_slots by one"
            ) from None
        raise


def _drop_copy(bulk: dbapi.Connection, copy: str) -> None:
    run(
        bulk,
        _text("SELECT pg_drop_replication_slot(s.slot_name) FROM pg_replication_slots s WHERE slot_name = {}", copy),
    )


@contextmanager
def _binary_output(slot: str) -> Iterator[None]:
    """The server raises an error when the function is for text and the plugin's output is binary; name the cause."""
    try:
        yield
    except SourceError as error:
        if "produces binary output" not in error.what:
            raise
        raise SlotError(
            f"slot {slot}: its output plugin writes binary output, and pg_logical_slot_get_changes reads text",
            hint="pgoutput is read with pg_logical_slot_get_binary_changes: set source.plugin to what the slot was"
            " made with, or choose another name for source.slot",
        ) from None


def _changes_query(verb: Literal["get", "peek"], slot: str, upto: Lsn, options: Options, output: Output) -> str:
    if output == "text":
        function, columns = f"pg_logical_slot_{verb}_changes", "(lsn - '0/0'::pg_lsn)::int8 AS lsn, data"
    else:
        function, columns = f"pg_logical_slot_{verb}_binary_changes", "data"
    arguments = [sql.Literal(slot), sql.Literal(str(upto)), sql.SQL("NULL")]
    arguments += [sql.Literal(word) for option in options for word in option]
    read = sql.SQL("SELECT {} FROM {}({})").format(sql.SQL(columns), sql.SQL(function), sql.SQL(", ").join(arguments))
    return read.as_string(None)


def _text(statement: str, *values: str) -> str:
    return sql.SQL(statement).format(*map(sql.Literal, values)).as_string(None)
