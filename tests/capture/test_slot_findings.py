"""What is worth a word about a slot, by thresholds and by signs of danger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spark_jobs.capture.lag import Lag
from spark_jobs.capture.slot_findings import slot_findings
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.health_limits import HealthLimits, Threshold
from spark_jobs.postgres.health import ServerIdentity, SlotHealth
from spark_jobs.postgres.open_transactions import OpenTransaction

WELL = SlotHealth(
    slot_name="shop",
    plugin="pgoutput",
    two_phase=False,
    active_pid=None,
    confirmed_flush_lsn=Lsn(1 << 40),
    restart_lsn=Lsn(1 << 40),
    flushed_lsn=Lsn(1 << 40),
    wal_status="reserved",
    safe_wal_size=None,
    invalidation_reason=None,
    oldest_transaction=None,
    free_replication_slots=3,
    server=ServerIdentity(1, 1, 180000, "shop"),
)
OLD = OpenTransaction(4711, None, timedelta(hours=2))


def test_a_healthy_slot_has_no_findings() -> None:
    assert slot_findings(WELL, Lag(0, 0.0), HealthLimits()) == ()
    assert slot_findings(replace(WELL, safe_wal_size=64 << 30, oldest_transaction=OLD), None, NEVER) == ()


NEVER = HealthLimits(*[Threshold()] * 5)


@pytest.mark.parametrize(
    ("change", "severity", "said"),
    [
        ({"wal_status": "lost"}, "error", "slot shop is lost (wal_removed): `postgres-cdc recover"),
        ({"invalidation_reason": "idle_timeout"}, "error", "slot shop is lost (idle_timeout)"),
        ({"wal_status": "unreserved"}, "error", "about to be lost: capture now"),
        ({"wal_status": "extended", "safe_wal_size": 9 << 30}, "warn", "9.0 GiB of WAL until it is lost"),
        ({"safe_wal_size": 1 << 20}, "warn", "1.0 MiB of WAL until max_slot_wal_keep_size is exceeded"),
        (
            {"restart_lsn": Lsn(1)},
            "warn",
            "the server keeps 1.0 TiB of WAL for the slot, and each read",
        ),
        ({"oldest_transaction": OLD}, "warn", "holds the slot back (of server process 4711, open for 7,200 s): commit"),
        (
            {"oldest_transaction": OpenTransaction(None, "gid", timedelta(hours=2), database="Shop")},
            "warn",
            "(prepared as 'gid', open for 7,200 s): COMMIT PREPARED 'gid' or ROLLBACK PREPARED 'gid', in database",
        ),
        (
            {"awaits": ("standby_1",)},
            "error",
            "slot shop sends nothing before the standby of slot standby_1 has received it, and that standby is not",
        ),
        ({"free_replication_slots": 0}, "warn", "no replication slot is free"),
    ],
)
def test_the_slot(change: dict[str, Any], severity: str, said: str) -> None:
    (finding,) = slot_findings(replace(WELL, **change), Lag(0, 0.0), HealthLimits())
    assert finding.severity == severity
    assert said in finding.text
    found, _, remedy = finding.text.rpartition(": ")  # as the doctor prints them
    assert found
    assert remedy


@pytest.mark.parametrize(
    ("lag", "severities"),
    [
        (Lag(1 << 30, 3600.0), []),
        (Lag((1 << 30) + 1, 0.0), ["warn"]),
        (Lag((10 << 30) + 1, 3601.0), ["error", "warn"]),
    ],
)
def test_the_lag(lag: Lag, severities: list[str]) -> None:
    assert [finding.severity for finding in slot_findings(WELL, lag, HealthLimits())] == severities


def test_an_age_that_is_hidden_is_no_finding() -> None:
    hidden = replace(WELL, oldest_transaction=OpenTransaction(4711, None, None))
    assert slot_findings(hidden, None, HealthLimits(oldest_transaction=Threshold(0))) == ()
