"""Partitions that came or went are read again, and nothing else of their tables."""
