"""One look at the catalogue per window: which followed tables changed, or may have, in ways that no event tells of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import CatalogueSeen, FileMoved, TableChanged, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.fingerprints import (
    fingerprint_words,
    fingerprints,
    holds_rows_from_before,
    insert_lsn,
    transaction_horizon,
)
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint, MovedFile
from spark_jobs.tables.followed_tables import followed_names, watched_tables


@dataclass(frozen=True)
class _Suspect:
    """``reasons`` are certain; each of ``moved_files`` is one unless a TRUNCATE explains it. ``is_new``: it was not
    looked at before."""

    fingerprint: Fingerprint
    reasons: tuple[str, ...] = ()
    moved_files: tuple[MovedFile, ...] = ()
    is_new: bool = False

    @property
    def is_certain(self) -> bool:
        return bool(self.reasons) or self.is_new


@dataclass
class CatalogueLook:
    """What was seen: ``fingerprints`` of all followed tables where one has changed, else none. ``insert_lsn``: the WAL
    behind all that was seen.

    The window's rows pass by ``note_truncates``, then ``seen`` tells what its marker says.
    """

    word: str
    horizon: int
    landed: CatalogueSeen | None
    fingerprints: tuple[Fingerprint, ...] = ()
    suspects: tuple[_Suspect, ...] = ()
    insert_lsn: int = 0
    _truncates: set[tuple[int, int]] = field(default_factory=set)

    def note_truncates(self, batch: pa.RecordBatch) -> None:
        """A TRUNCATE that comes through the slot explains why a table's rows lie in another file."""
        if self._moved:
            found = batch.filter(pc.equal(batch.column("kind"), RowKind.TRUNCATE.value))
            self._truncates |= set(zip(found.column("relid").to_pylist(), found.column("xid").to_pylist(), strict=True))

    def seen(self, ordinal: int, window: Window) -> CatalogueSeen:
        """For the marker of window number ``ordinal``. What nothing explains once the log is past it, is a change."""
        moved = tuple(file for file in self._moved if (file.table.relid, file.xid) not in self._truncates)
        due = tuple(file.table for file in moved if file.until <= window.hi)
        changed = _merged((*(_changed(suspect) for suspect in self.suspects if suspect.is_certain), *due))
        waiting = tuple(file for file in moved if file.until > window.hi)
        if not self.fingerprints and self.landed is not None:
            return replace(self.landed, horizon=self.horizon, changed=changed, moved=waiting)
        return CatalogueSeen(self.word, ordinal, self.horizon, changed, waiting)

    @property
    def _moved(self) -> tuple[FileMoved, ...]:
        """Known since an earlier window, or new."""
        known = self.landed.moved if self.landed is not None else ()
        new = (
            FileMoved(replace(_changed(suspect), reasons=(file.reason,)), file.changed, self.insert_lsn)
            for suspect in self.suspects
            for file in suspect.moved_files
        )
        return (*known, *new)


def look_at_catalogue(
    control: Connection, pipeline: Pipeline, checkpoint: WindowMarker | None, log: ChangeLog
) -> CatalogueLook:
    """The followed tables as the catalogue has them now, against what was landed with ``checkpoint``, if anything was.

    One statement where nothing has changed. Raises SourceError, LakeError.
    """
    watched = watched_tables(pipeline, followed_names(control, pipeline), checkpoint)
    landed, horizon = checkpoint.catalogue if checkpoint else None, transaction_horizon(control)
    word = _word_of(word for _, word in fingerprint_words(control, watched).values())
    if landed is not None and landed.word == word:
        return CatalogueLook(word, horizon, landed)
    now = fingerprints(control, watched)
    word = _word_of(fingerprint.word for fingerprint in now.values())
    before = log.fingerprints(landed.window) if landed is not None else ()
    suspects = _suspects(control, before, now.values(), landed.horizon if landed is not None else 0)
    return CatalogueLook(word, horizon, landed, tuple(now.values()), suspects, insert_lsn(control))


def certain_changes(before: Iterable[Fingerprint], now: Iterable[Fingerprint]) -> dict[QualifiedName, tuple[str, ...]]:
    """Why rows may differ that no event tells of, as far as the catalogue alone says it."""
    suspects = _differences(before, now)
    return {suspect.fingerprint.name: suspect.reasons for suspect in suspects if suspect.reasons}


def _differences(before: Iterable[Fingerprint], now: Iterable[Fingerprint]) -> tuple[_Suspect, ...]:
    by_relid = {fingerprint.relid: fingerprint for fingerprint in before}
    by_name = {fingerprint.name: fingerprint for fingerprint in by_relid.values()}
    suspects = []
    for fingerprint in now:
        known = by_relid.get(fingerprint.relid) or by_name.get(fingerprint.name)
        if known is None:
            suspects.append(_Suspect(fingerprint, is_new=True))
        elif known.word != fingerprint.word:
            found = fingerprint.differences_from(known)
            suspects.append(_Suspect(fingerprint, found.reasons, found.moved_files))
    return tuple(suspects)


def _suspects(
    control: Connection, before: Iterable[Fingerprint], now: Iterable[Fingerprint], horizon: int
) -> tuple[_Suspect, ...]:
    """Without files that hold rows from before: those were moved, and none of them was written again."""
    return tuple(
        replace(
            suspect,
            moved_files=tuple(
                moved for moved in suspect.moved_files if not holds_rows_from_before(control, moved.name, horizon)
            ),
        )
        for suspect in _differences(before, now)
    )


def _changed(suspect: _Suspect) -> TableChanged:
    known = suspect.fingerprint
    return TableChanged(known.relid, known.name.nspname, known.name.relname, known.word, suspect.reasons)


def _merged(tables: Iterable[TableChanged]) -> tuple[TableChanged, ...]:
    """One entry for a table of one fingerprint, with all reasons."""
    found: dict[tuple[int, str], TableChanged] = {}
    for table in tables:
        known = found.get((table.relid, table.word), replace(table, reasons=()))
        found[table.relid, table.word] = replace(known, reasons=tuple(dict.fromkeys(known.reasons + table.reasons)))
    return tuple(found.values())


def _word_of(words: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(sorted(words)).encode(), digest_size=8).hexdigest()
