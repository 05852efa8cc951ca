"""A table with all its partitions, in one query: the one place that follows ``pg_inherits`` down.

``pg_partition_tree`` would lock each partition, and wait while one is altered.
"""

from __future__ import annotations


def partition_tree_sql(roots: str, *, inheriting: bool = False) -> str:
    """``tree (root, member)`` for a ``WITH RECURSIVE``: each OID of ``roots``, which has a column ``oid``, with itself
    and with its partitions at any level; if ``inheriting``, with the tables that inherit from it too."""
    parent = "" if inheriting else " JOIN pg_catalog.pg_class p ON p.oid = t.member AND p.relkind = 'p'"
    return f"""tree (root, member) AS (
  SELECT oid, oid FROM {roots}
  UNION
  SELECT t.root, i.inhrelid FROM tree t{parent} JOIN pg_catalog.pg_inherits i ON i.inhparent = t.member
)"""  # noqa: S608  # constants of the callers
