"""What a table keeps: the source's rows, or also what was there before. docs/modes.md says what each event does.

These questions are what most code needs to know of a mode. How each one's rows are made and written stands in
``schema/mode_columns.py`` (its columns), ``apply/net_change`` (its net change) and ``writers`` (Spark's statement in
``past_sql.py``, rows without Spark in ``rewritten_rows.py``, and a new snapshot in ``past_rows.py``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["mirror", "soft_delete", "history", "append"]
# each says of a row which commit last wrote it; in the order in which a table has them
CommitColumn = Literal["_commit_lsn", "_commit_time"]


@dataclass(frozen=True)
class Form:
    """Which rows a table keeps, and which of the ``commit_columns`` they have besides the columns of the mode."""

    mode: Mode = "mirror"
    commit_columns: tuple[CommitColumn, ...] = ()

    @classmethod
    def of(cls, mode: Mode, names: Collection[str]) -> Form:
        """``names``: commit columns in any order. In mode ``append`` every row has them anyway."""
        columns = () if holds_changes(mode) else get_args(CommitColumn)
        return cls(mode, tuple(column for column in columns if column in names))

    def __str__(self) -> str:
        return " with ".join(filter(None, [self.mode, " and ".join(self.commit_columns)]))


MIRROR = Form()


def keeps_past(mode: Mode) -> bool:
    """Whether the table has more than the source's current rows, so that nothing can replace all of them."""
    return mode != "mirror"


def holds_changes(mode: Mode) -> bool:
    """Whether its rows are changes: they are only ever added to, and no key finds one."""
    return mode == "append"


def has_one_row_per_key(mode: Mode) -> bool:
    """Whether a table with a key never has two rows with the same one."""
    return mode in ("mirror", "soft_delete")


def has_versions(mode: Mode) -> bool:
    """Whether a row that changes stays as it was and ends, and another one begins."""
    return mode == "history"


def needs_key(mode: Mode) -> bool:
    """Whether it keeps the past of each row, which only a key tells from the others."""
    return mode in ("soft_delete", "history")
