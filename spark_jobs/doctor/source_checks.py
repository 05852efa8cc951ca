"""The server and the role: whether they allow logical decoding."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.capture.plugins import NEWEST_SERVER, OLDEST_SERVER, plugin_options
from spark_jobs.capture.slot_findings import slot_findings
from spark_jobs.configuration import Source
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.errors import RECOVER, BreakError, ConfigurationError, PreconditionError, SlotError, SourceError
from spark_jobs.options.health_limits import HealthLimits
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.health import SlotHealth, slot_health
from spark_jobs.postgres.privileges import RolePrivileges, ServerSettings
from spark_jobs.postgres.provider import Provider
from spark_jobs.postgres.replication import replication_connection
from spark_jobs.postgres.slot import readable_slot
from spark_jobs.readable_size import size

AREA = "source"


def server_checks(settings: ServerSettings) -> Iterator[Check]:
    provider = settings.provider
    version = f"{settings.server_version} on {provider.name}" if provider.name else settings.server_version
    if settings.server_version_num < OLDEST_SERVER * 10_000:
        yield fail(AREA, "server version", version, f"PostgreSQL {OLDEST_SERVER} or newer is needed")
    elif settings.server_version_num >= (NEWEST_SERVER + 1) * 10_000:
        remedy = (
            f"this release was tested up to PostgreSQL {NEWEST_SERVER}: look for a newer one, and verify the tables"
        )
        yield warn(AREA, "server version", version, remedy)
    else:
        yield ok(AREA, "server version", version)
    if error := settings.why_no_decoding:
        yield fail(AREA, "wal_level", error.what, error.hint)
    else:
        yield ok(AREA, "wal_level", settings.wal_level)
    if settings.in_recovery:
        remedy = "create the publication on the primary; sync uses it from there"
        if settings.effective_wal_level:
            remedy += (
                ". A primary with wal_level = replica must keep a logical slot of its own: without one, the"
                " standby's slots are lost"
            )
        yield warn(AREA, "role of the server", "standby", remedy)
    if settings.server_encoding == "SQL_ASCII":
        yield warn(AREA, "encoding", "SQL_ASCII", "bytes that are not UTF-8 will stop their table")
    else:
        yield ok(AREA, "encoding", settings.server_encoding)
    if settings.free_wal_senders < 1:
        remedy = provider.or_raise("end a replication connection", "max_wal_senders", settings.max_wal_senders)
        senders = f"none free of {settings.max_wal_senders}"
        yield fail(AREA, "WAL senders", senders, f"a snapshot needs one: {remedy}")
    else:
        yield ok(AREA, "WAL senders", f"{settings.free_wal_senders} free of {settings.max_wal_senders}")


def plugin_check(source: Source, settings: ServerSettings) -> Check:
    """Whether this server supports the plugin's configured options."""
    try:
        options = plugin_options(source, settings.server_version_num)
    except (ConfigurationError, PreconditionError) as error:
        return fail(AREA, "output plugin", error.what, error.hint)
    option_list = ", ".join(f"{name} {value}" for name, value in options if name != "publication_names")
    return ok(AREA, "output plugin", f"{source.plugin}: {option_list}")


def slots_free_check(settings: ServerSettings, slot_exists: bool) -> Check:
    """One slot for the durable one if it is still to be created, one for the temporary copy that each read makes."""
    what, slots = "replication slots", f"{settings.free_slots} free of {settings.max_replication_slots}"
    limit = settings.max_replication_slots
    remedy = settings.provider.or_raise("drop a slot that nobody reads", "max_replication_slots", limit)
    if slot_exists and settings.free_slots < 1:
        return warn(AREA, what, slots, f"windows are then read by peeking at the slot itself: {remedy}")
    if not slot_exists and settings.free_slots < 1:
        return fail(AREA, what, slots, remedy)
    if not slot_exists and settings.free_slots < 2:
        return fail(AREA, what, slots, f"the slot and a snapshot need two: {remedy}")
    return ok(AREA, what, slots)


def role_check(role: RolePrivileges, provider: Provider) -> Check:
    """The right to create and read slots."""
    if role.may_replicate:
        privilege = f"{role.name}: superuser" if role.superuser else f"{role.name}: REPLICATION"
        return ok(AREA, "role", privilege)
    return fail(AREA, "role", f"{role.name}: no REPLICATION", provider.let_replicate(role.name))


def replication_check(source: Source) -> Check:
    """Whether a replication connection can be opened, as each snapshot does: a pooler that passes on any other may
    refuse it."""
    try:
        with replication_connection(source.dsn):
            return ok(AREA, "replication connection", "can be opened")
    except SourceError as error:
        return fail(AREA, "replication connection", error.what, error.hint)


def slot_checks(connection: Connection, source: Source, limits: HealthLimits) -> Iterator[Check]:
    """Whether the slot is ours, and whether the server still holds what it needs."""
    try:
        if readable_slot(connection, source.slot) is None:
            yield ok(AREA, f"slot {source.slot}", "does not exist yet: sync creates it")
            return
        health = slot_health(connection, source.slot)
    except (SlotError, BreakError) as error:
        yield fail(AREA, f"slot {source.slot}", error.what, error.hint)
        return
    yield _slot_kind(health, source)
    yield from _slot_wal(health, limits)


def _slot_kind(health: SlotHealth, source: Source) -> Check:
    what = f"slot {source.slot}"
    if health.plugin != source.plugin:
        remedy = "choose another name for source.slot, or source.plugin as the slot has it"
        return fail(AREA, what, f"created for {health.plugin}, the configuration says {source.plugin}", remedy)
    if health.active:
        remedy = "a sync that runs now is fine; any other reader must stop"
        return warn(AREA, what, f"in use by server process {health.active_pid}", remedy)
    return ok(AREA, what, f"{health.plugin}, confirmed to {health.confirmed_flush_lsn}")


def _slot_wal(health: SlotHealth, limits: HealthLimits) -> Iterator[Check]:
    """A slot that is lost, or about to be, stops sync; a value beyond its threshold does not."""
    what = "WAL kept for the slot"
    state = f"{size(health.restart_bytes or 0)}, {health.wal_status}"
    if health.wal_status == "unreserved":
        yield fail(AREA, what, state, "the server removes it at the next checkpoint: run sync now")
    elif health.invalidation_reason:
        yield fail(AREA, what, f"invalidated: {health.invalidation_reason}", RECOVER)
    elif findings := slot_findings(health, None, limits):
        for finding in findings:
            state, _, remedy = finding.text.rpartition(": ")
            yield warn(AREA, what, state, remedy)
    else:
        yield ok(AREA, what, state)
