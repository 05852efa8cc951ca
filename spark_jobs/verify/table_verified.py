"""What verify reports of one table, and of all of them. It never holds values of columns outside the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from spark_jobs.errors import CdcError, LakeError, new_snapshot
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

Difference = Literal["missing", "extra", "changed"]
Verdict = Literal["equal", "different", "not compared"]


@dataclass(frozen=True)
class RowCounts:
    """``missing`` rows are only in the source; ``extra`` ones are only in the lake, or are further copies there;
    ``changed`` ones are in both and differ. ``in_flight``: rows of another tool's copy that may only be late."""

    source_rows: int = 0
    lake_rows: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    in_flight: int = 0

    @property
    def differing(self) -> int:
        return self.missing + self.extra + self.changed


@dataclass(frozen=True)
class KeyValue:
    """One column of a key; ``value`` as Spark prints it, truncated if it is long, bytes in hexadecimal."""

    column: str
    value: str | None


@dataclass(frozen=True)
class DifferingRow:
    """``columns`` are those that differ in a changed row, without their values."""

    difference: Difference
    key: tuple[KeyValue, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableVerified:
    """The rows of the source at ``lsn`` compared with those of the Delta table at ``delta_version``.

    ``copy``: the path of the table that was compared, where it is another tool's. ``rows`` are the first that differ,
    by key. ``error`` says why a table was not compared; its counts are then 0, and ``lsn`` too if there was none.
    """

    name: QualifiedName
    lsn: Lsn
    verdict: Verdict
    delta_version: int | None = None
    counts: RowCounts = field(default_factory=RowCounts)
    rows: tuple[DifferingRow, ...] = ()
    error: CdcError | None = None
    copy: str = ""

    @classmethod
    def compared(
        cls, name: QualifiedName, lsn: Lsn, delta_version: int, counts: RowCounts, rows: tuple[DifferingRow, ...]
    ) -> TableVerified:
        return cls(name, lsn, "different" if counts.differing else "equal", delta_version, counts, rows)

    @classmethod
    def not_compared(cls, name: QualifiedName, lsn: Lsn, error: CdcError) -> TableVerified:
        return cls(name, lsn, "not compared", error=error)

    @property
    def problem(self) -> CdcError | None:
        """Without values of keys; None if the table is equal."""
        if self.error is not None:
            at = f" at {self.lsn}" if self.lsn else ""
            return self.error.within(f"{self.name} was not compared{at}")
        if self.verdict == "equal":
            return None
        counts = self.counts
        where = f" of {self.copy}" if self.copy else ""
        remedy = "ask the tool that keeps it" if self.copy else new_snapshot(self.name)
        return LakeError(
            f"{self.name} differs from the source at {self.lsn}: {counts.missing:,} rows are missing in the lake,"
            f" {counts.extra:,} are extra, {counts.changed:,} are changed, of {counts.source_rows:,} compared"
            f" with Delta version {self.delta_version}{where}",
            hint=f"find out what wrote to the Delta table; {remedy}",
        )


@dataclass(frozen=True)
class VerifyReport:
    """``tables`` in the order asked for."""

    tables: tuple[TableVerified, ...]
    seconds: float

    @property
    def problems(self) -> tuple[CdcError, ...]:
        """One for each table that differs, or was not compared."""
        return tuple(table.problem for table in self.tables if table.problem is not None)
