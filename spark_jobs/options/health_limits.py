"""From which values on the slot's health is reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """The value from which a number is a warning, or an error; None: never."""

    warn: int | None = None
    error: int | None = None


@dataclass(frozen=True)
class HealthLimits:
    """The thresholds of the slot's health, in bytes and seconds. ``safe_wal_size`` is reported when it is too small,
    the others when they are too large. A finding stops nothing."""

    lag_bytes: Threshold = Threshold(1 << 30, 10 << 30)
    lag_seconds: Threshold = Threshold(3600)
    restart_bytes: Threshold = Threshold(10 << 30)
    oldest_transaction: Threshold = Threshold(3600)
    safe_wal_size: Threshold = Threshold(1 << 30)
