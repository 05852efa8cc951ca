"""Snapshots of large tables, read in chunks: each in a short transaction of its own, and none twice."""
