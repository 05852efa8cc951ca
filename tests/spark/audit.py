"""An audit log kept by triggers in the source, and what each mode's table must hold by it: the oracle of the modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from psycopg import sql
from psycopg.rows import class_row

from tests.fixtures.servers import Database

Row: TypeAlias = "dict[str, Any]"

AUDIT = (
    "CREATE TABLE audit (seq bigserial PRIMARY KEY, relname text, op text, xid bigint, old jsonb, new jsonb)",
    "ALTER TABLE audit ALTER xid SET DEFAULT txid_current()",
    """CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'TRUNCATE' THEN
      INSERT INTO audit (relname, op) VALUES (TG_TABLE_NAME, 'truncate');
    ELSIF TG_OP = 'INSERT' THEN
      INSERT INTO audit (relname, op, new) VALUES (TG_TABLE_NAME, 'insert', to_jsonb(NEW));
    ELSIF TG_OP = 'UPDATE' THEN
      INSERT INTO audit (relname, op, old, new) VALUES (TG_TABLE_NAME, 'update', to_jsonb(OLD), to_jsonb(NEW));
    ELSE
      INSERT INTO audit (relname, op, old) VALUES (TG_TABLE_NAME, 'delete', to_jsonb(OLD));
    END IF;
    RETURN NULL; END $$""",
)


def audited(relname: str) -> tuple[str, ...]:
    """The statements that put the triggers on a table."""
    name = sql.Identifier(relname).as_string()
    return (
        f"CREATE TRIGGER audit_rows AFTER INSERT OR UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION audit()",
        f"CREATE TRIGGER audit_all AFTER TRUNCATE ON {name} FOR EACH STATEMENT EXECUTE FUNCTION audit()",
    )


@dataclass(frozen=True)
class Audited:
    """One change, in the order in which it was made; transactions must not overlap."""

    op: str
    xid: int
    old: Row | None
    new: Row | None


def audit_of(database: Database, relname: str) -> list[Audited]:
    with database.connect() as connection, connection.cursor(row_factory=class_row(Audited)) as cursor:
        return cursor.execute(
            "SELECT op, xid, old, new FROM audit WHERE relname = %s ORDER BY seq", [relname]
        ).fetchall()


@dataclass
class Versions:
    """Every version of every row, by key; xid None: the snapshot. ``ended``: row, from, until; ``open``: row, from."""

    key: str
    ended: list[tuple[Row, int | None, int]] = field(default_factory=list)
    open: dict[Any, tuple[Row, int | None]] = field(default_factory=dict)
    last: dict[Any, tuple[Row, int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, key: str, snapshot: Sequence[Row], changes: Sequence[Audited]) -> Versions:
        versions = cls(key)
        for row in snapshot:
            versions._begin(row, None)
        for change in changes:
            versions._apply(change)
        return versions

    @property
    def history(self) -> list[tuple[Row, int | None, int | None]]:
        """(row, from, to). What one transaction began and ended is no version."""
        ended = [(row, since, until) for row, since, until in self.ended if since != until]
        return [*ended, *((row, since, None) for row, since in self.open.values())]

    @property
    def soft_deleted(self) -> list[tuple[Row, int | None]]:
        """(last values, deleted by)."""
        return list(self.last.values())

    def _apply(self, change: Audited) -> None:
        if change.op == "truncate":
            for key in list(self.open):
                self._end(key, change.xid)
        if change.old is not None:
            self._end(change.old[self.key], change.xid)
        if change.new is not None:
            self._begin(change.new, change.xid)

    def _begin(self, row: Row, xid: int | None) -> None:
        assert row[self.key] not in self.open
        self.open[row[self.key]] = (row, xid)
        self.last[row[self.key]] = (row, None)

    def _end(self, key: Any, xid: int) -> None:
        row, since = self.open.pop(key)
        self.ended.append((row, since, xid))
        self.last[key] = (row, xid)
