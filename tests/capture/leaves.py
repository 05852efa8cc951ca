"""A partition whose replica identity may be another for a moment, and what is said of it then."""

from __future__ import annotations

MADE = (
    "CREATE TABLE root (id int PRIMARY KEY, v text NOT NULL) PARTITION BY RANGE (id)",
    "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (1000)",
    "INSERT INTO root SELECT g, 'v' || g FROM generate_series(1, 9) g",
)
REASON = ("the replica identity of public.leaf was another for a time",)
