"""The slot that logs of tests are landed from."""

from __future__ import annotations

from spark_jobs.change_log.window_marker import SlotIdentity

IDENTITY = SlotIdentity(7_123_456_789_012_345_678, 1, "shop", "sl", "pgoutput", (("proto_version", "1"),), 180004)
