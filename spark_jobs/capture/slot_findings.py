"""Warnings and errors about the slot and its server: exceeded thresholds, and signs that the slot may be lost.

Dagster's check, ``status``, ``doctor`` and the metrics all use these. No finding stops a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spark_jobs.capture.lag import Lag
from spark_jobs.errors import RECOVER
from spark_jobs.options.health_limits import HealthLimits, Threshold
from spark_jobs.postgres.health import SlotHealth
from spark_jobs.postgres.slot import standby_away
from spark_jobs.readable_size import size

Severity = Literal["warn", "error"]


@dataclass(frozen=True)
class Finding:
    """``text`` is one line: what was found, a colon, and what to do."""

    severity: Severity
    text: str


def slot_findings(health: SlotHealth, lag: Lag | None, limits: HealthLimits) -> tuple[Finding, ...]:
    """All findings, errors first. ``lag`` is None while there is no change log."""
    findings = (*_of_state(health), *_of_wal(health, limits), *_of_lag(lag, limits), *_of_others(health, limits))
    return tuple(sorted(findings, key=lambda finding: finding.severity))


def _of_state(health: SlotHealth) -> Iterator[Finding]:
    slot = health.slot_name
    if health.wal_status == "lost" or health.invalidation_reason:
        yield Finding("error", f"slot {slot} is lost ({health.invalidation_reason or 'wal_removed'}): {RECOVER}")
    elif health.wal_status == "unreserved":
        remedy = health.provider.or_raise("capture now", "max_slot_wal_keep_size")
        yield Finding("error", f"slot {slot} is about to be lost: {remedy}")
    elif health.wal_status == "extended" and health.safe_wal_size is not None:
        text = f"slot {slot} holds more than max_wal_size; {size(health.safe_wal_size)} of WAL until it is lost"
        yield Finding("warn", f"{text}: run sync, or see why it does not run")
    if (away := standby_away(health)) is not None:
        yield Finding("error", f"{away.what}: {away.hint}")


def _of_wal(health: SlotHealth, limits: HealthLimits) -> Iterator[Finding]:
    safe, kept = health.safe_wal_size, health.restart_bytes
    if safe is not None and (severity := _below(safe, limits.safe_wal_size)):
        remedy = health.provider.or_raise("capture", "max_slot_wal_keep_size")
        yield Finding(severity, f"{size(safe)} of WAL until max_slot_wal_keep_size is exceeded: {remedy}")
    if kept is not None and (severity := _above(kept, limits.restart_bytes)):
        text = f"the server keeps {size(kept)} of WAL for the slot, and each read decodes them: end old transactions"
        yield Finding(severity, f"{text}, run sync")


def _of_lag(lag: Lag | None, limits: HealthLimits) -> Iterator[Finding]:
    if lag is None:
        return
    way_out = "run sync, or see why it does not run"
    if severity := _above(lag.bytes, limits.lag_bytes):
        yield Finding(severity, f"{size(lag.bytes)} of WAL are not landed: {way_out}")
    if severity := _above(lag.seconds, limits.lag_seconds):
        yield Finding(severity, f"the change log is {lag.seconds:,.0f} s behind the source: {way_out}")


def _of_others(health: SlotHealth, limits: HealthLimits) -> Iterator[Finding]:
    oldest = health.oldest_transaction
    if oldest and oldest.age and (severity := _above(oldest.age.total_seconds(), limits.oldest_transaction)):
        ended = "commit it or roll it back" if oldest.gid is None else oldest.way_to_end
        yield Finding(severity, f"a transaction holds the slot back ({oldest}): {ended}")
    if health.free_replication_slots < 1:
        remedy = health.provider.or_raise("drop one that nobody reads", "max_replication_slots")
        yield Finding("warn", f"no replication slot is free, and a snapshot needs one: {remedy}")


def _above(number: float, limit: Threshold) -> Severity | None:
    if limit.error is not None and number > limit.error:
        return "error"
    return "warn" if limit.warn is not None and number > limit.warn else None


def _below(number: float, limit: Threshold) -> Severity | None:
    if limit.error is not None and number < limit.error:
        return "error"
    return "warn" if limit.warn is not None and number < limit.warn else None
