"""What ``COMMENT ON`` says of tables and their columns, as far as it is shown: up to 4,000 characters of each comment.

https://www.postgresql.org/docs/current/catalog-pg-description.html
"""

from __future__ import annotations

_MOST = 4_000


def comment_sql(relid: str, attnum: str) -> str:
    """The comment on a column, or with number 0 on the table, as an SQL expression; null if there is none."""
    return f"""(SELECT CASE WHEN length(d.description) > {_MOST} THEN left(d.description, {_MOST - 3}) || '...'
      ELSE d.description END
    FROM pg_catalog.pg_description d
    WHERE d.objoid = {relid} AND d.classoid = 'pg_catalog.pg_class'::regclass AND d.objsubid = {attnum})"""  # noqa: S608
