"""Read partitions again that were attached, detached or dropped, and nothing else of their tables."""
