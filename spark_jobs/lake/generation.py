"""Which snapshot a Delta table grew from, and under which settings.

Two versions of a table with equal generations differ only by changes that were applied. Commits and cuts record a
generation as text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.column_options import NO_CHOSEN_TYPES, ChosenTypes
from spark_jobs.options.table_mode import CommitColumn, Form, Mode, keeps_past
from spark_jobs.qualified_name import QualifiedName

_EMPTY = "empty"


@dataclass(frozen=True)
class Generation:
    """``word``: that of the table's ``Fingerprint`` at the snapshot, empty if unknown. ``missing_operations``: those
    that its publications leave out, so it may hold a row whose key is inserted again. ``mode``, ``types``: those that
    it was written with; the configuration may have others by now. ``mask``: the word of the masks that its hashes were
    made with (``TableMask.word``), empty if no column is masked. ``commit_columns``: those that its rows have, besides
    the columns of the mode. ``shows``: the source table, where that has another name than the lake's. ``is_empty``: the
    snapshot has no rows of the source (``Table.begins_empty``)."""

    snapshot_lsn: Lsn
    word: str = ""
    missing_operations: tuple[str, ...] = ()
    mode: Mode = "mirror"
    types: ChosenTypes = NO_CHOSEN_TYPES
    mask: str = ""
    commit_columns: tuple[CommitColumn, ...] = ()
    shows: QualifiedName | None = None
    is_empty: bool = False

    @classmethod
    def parse(cls, text: str) -> Generation:
        """The inverse of ``str``. Raises ValueError, also for what a later version may have added."""
        lsn, word, missing, mode, types, mask, of_commit, shows, empty, *unknown = [*text.split("-"), *[""] * 8]
        known = next((known for known in get_args(Mode) if known == (mode or "mirror")), None)
        columns = tuple(column for column in get_args(CommitColumn) if column in of_commit.split("+"))
        if (
            known is None
            or any(unknown)
            or empty not in ("", _EMPTY)
            or "+".join(columns) != of_commit
            or (shows and shows.count("/") != 1)
        ):
            raise ValueError(f"unknown generation {text}")
        operations = tuple(missing.split("+")) if missing else ()
        relation = QualifiedName.of_path(shows) if shows else None
        chosen = ChosenTypes.from_word(types)
        return cls(Lsn(int(lsn, 16)), word, operations, known, chosen, mask, columns, relation, empty == _EMPTY)

    def __str__(self) -> str:
        """The parts joined by hyphens, the LSN as 16 hexadecimal digits; empty ones at the end are left out."""
        mode = self.mode if keeps_past(self.mode) else ""
        missing, of_commit = "+".join(self.missing_operations), "+".join(self.commit_columns)
        shows = self.shows.path.replace("-", "%2D") if self.shows else ""
        empty = _EMPTY if self.is_empty else ""
        parts = (self.snapshot_lsn.key, self.word, missing, mode, self.types.word, self.mask, of_commit, shows, empty)
        return "-".join(parts).rstrip("-")

    @property
    def form(self) -> Form:
        return Form(self.mode, self.commit_columns)

    def in_form(self, form: Form) -> Generation:
        return replace(self, mode=form.mode, commit_columns=form.commit_columns)


NO_GENERATION = Generation(Lsn(0))
