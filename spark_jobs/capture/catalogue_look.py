"""The look at the catalogue that each window takes: which followed tables changed, or may have, without a row event."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import CatalogueSeen, FileMoved, TableChanged, WindowMarker
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.fingerprints import (
    Watched,
    fingerprints,
    holds_rows_from_before,
    insert_lsn,
    look_words,
    transaction_horizon,
)
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint, FingerprintPart
from spark_jobs.schema.fingerprint_differences import Differences, differences
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.followed_tables import watched_tables


@dataclass(frozen=True)
class _Suspect:
    """A table whose rows may have changed without an event: how it ``differs`` from the last look. ``is_new``: no
    earlier look has shown the table."""

    fingerprint: Fingerprint
    differs: Differences
    is_new: bool = False

    @property
    def is_certain(self) -> bool:
        return bool(self.differs.reasons or self.differs.columns) or self.is_new

    def with_reasons_only(self) -> _Suspect:
        """The same suspect with its column changes as reasons: nothing is followed in place."""
        reasons = (*self.differs.reasons, *self.differs.column_words)
        return replace(self, differs=replace(self.differs, reasons=reasons, columns=(), regions=()))


@dataclass
class CatalogueLook:
    """What one look showed. If nothing has changed since the last one, only ``word`` and ``horizon`` are new.

    Otherwise ``fingerprints`` are those of all followed tables, ``before`` the ones that the log holds, ``facts``
    describe the tables whose columns changed, and ``insert_lsn`` is an LSN after all that the look saw.

    Pass all rows of the window to ``note_truncates``; ask ``is_truncated_by_others``; then call ``seen``. ``words``:
    relid and fingerprint of each followed table.
    """

    word: str
    horizon: int
    landed: CatalogueSeen | None
    words: Mapping[QualifiedName, tuple[int, str]]
    fingerprints: tuple[Fingerprint, ...] = ()
    suspects: tuple[_Suspect, ...] = ()
    facts: tuple[RelationFacts, ...] = ()
    insert_lsn: int = 0
    before: tuple[Fingerprint, ...] = ()
    _truncates: set[tuple[int, int]] = field(default_factory=set)
    _noted: list[TableChanged] = field(default_factory=list)

    @property
    def relids(self) -> tuple[int, ...]:
        """The followed tables."""
        return tuple(relid for relid, _ in self.words.values())

    @property
    def parts_before(self) -> frozenset[int]:
        """The followed tables and their partitions in the look before, if anything has changed since."""
        return frozenset(part.relid for fingerprint in self.before for part in fingerprint.parts)

    @property
    def new_partitions(self) -> tuple[tuple[int, FingerprintPart], ...]:
        """Those that the look before did not show, of tables that it showed; each with its table's relid."""
        known = {fingerprint.relid: {part.relid for part in fingerprint.parts} for fingerprint in self.before}
        return tuple(
            (fingerprint.relid, part)
            for fingerprint in self.fingerprints
            for part in fingerprint.parts
            if part.relid not in known.get(fingerprint.relid, {part.relid})
        )

    def note_gone(self, announced: Collection[int]) -> None:
        """Note the tables that may have had a followed one as a partition which is gone, or has another name: of these
        ``announced`` by the window, which DDL may have been, the catalogue keeps no trace."""
        shown = {part.relid for fingerprint in self.fingerprints for part in fingerprint.parts}
        gone = [each for each in self.before if each.relid in announced and each.relid not in shown]
        self.note_reasons(_may_have_held(gone, self.before, self.fingerprints), shown=False)

    def note_reasons(self, reasons: Iterable[tuple[int, str]], *, shown: bool = True) -> None:
        """Note why rows of these tables, by relid, may differ by what the window holds. ``shown``: so that the
        fingerprint of a snapshot tells whether it was taken since."""
        followed = {relid: (name, word) for name, (relid, word) in self.words.items()}
        for relid, reason in reasons:
            if relid in followed:
                name, word = followed[relid]
                self._noted.append(TableChanged(relid, name.nspname, name.relname, word if shown else "", (reason,)))

    def note_truncates(self, batch: pa.RecordBatch) -> None:
        """Note the TRUNCATEs in these rows: they explain why a table has a new file."""
        if self._moved:
            truncates = batch.filter(pc.equal(batch.column("kind"), RowKind.TRUNCATE.value))
            self._truncates |= set(
                zip(truncates.column("relid").to_pylist(), truncates.column("xid").to_pylist(), strict=True)
            )

    @property
    def is_truncated_by_others(self) -> bool:
        """Whether a table has a new file from another transaction than those that were seen to truncate the table. That
        may be a subtransaction of one of them."""
        truncated = {relid for relid, _ in self._truncates}
        moved = {(file.table.relid, file.xid) for file in self._moved}
        return any(relid in truncated for relid, _ in moved - self._truncates)

    def note_subtransactions(self, truncates: Collection[tuple[int, int]]) -> None:
        """Note further TRUNCATEs of the window: table, and subtransaction."""
        self._truncates |= set(truncates)

    def seen(self, ordinal: int, window: Window) -> CatalogueSeen:
        """What the marker of window number ``ordinal`` says of the catalogue. A moved file counts as a change once the
        log has passed the LSN before which a TRUNCATE would have explained it."""
        moved = tuple(file for file in self._moved if (file.table.relid, file.xid) not in self._truncates)
        due = tuple(file.table for file in moved if file.until <= window.hi)
        changed = _merged((*(_changed(suspect) for suspect in self.suspects if suspect.is_certain), *due, *self._noted))
        waiting = tuple(file for file in moved if file.until > window.hi)
        if not self.fingerprints and self.landed is not None:
            return replace(self.landed, horizon=self.horizon, changed=changed, moved=waiting, annotated=())
        return CatalogueSeen(self.word, ordinal, self.horizon, changed, waiting, self._annotated)

    @property
    def _annotated(self) -> tuple[int, ...]:
        """The tables about which the source says something else than before. What it says about a table that
        no look has shown yet, or that an earlier version has looked at, only counts if it has a comment: that of the
        others is written with their next change."""
        known = {fingerprint.relid: fingerprint.annotations for fingerprint in self.before}
        triples = ((each.relid, known.get(each.relid), each.annotations) for each in self.fingerprints)
        return tuple(
            relid
            for relid, before, now in triples
            if now is not None and (now.has_comments if before is None else now != before)
        )

    @property
    def _moved(self) -> tuple[FileMoved, ...]:
        """Files that moved, seen in this look or in an earlier one."""
        known = self.landed.moved if self.landed is not None else ()
        new = (
            FileMoved(
                replace(_changed(suspect), reasons=(file.reason,), columns=(), added=(), regions=()),
                file.changed,
                self.insert_lsn,
            )
            for suspect in self.suspects
            for file in suspect.differs.moved_files
        )
        return (*known, *new)


def look_at_catalogue(at_source: AtSource, checkpoint: WindowMarker) -> CatalogueLook:
    """Compare the followed tables in the catalogue with what the log holds as of ``checkpoint``.

    While nothing has changed, a single statement compares all tables. Raises SourceError, LakeError.
    """
    control = at_source.connection
    watched = watched_tables(at_source.pipeline, at_source.looked_at_names(), checkpoint)
    landed, horizon = checkpoint.catalogue, transaction_horizon(control)
    rows = look_words(control, watched)
    words = {name: (relid, word) for name, (relid, word, _) in rows.items()}
    word = _word_of(word for _, _, word in rows.values())
    if landed is not None and landed.word == word:
        return CatalogueLook(word, horizon, landed, words)
    before = at_source.log.last_look(checkpoint)
    # read before the fingerprints: DDL in between then shows as a difference between the two (see _describes)
    facts = _facts_of_changed(control, watched, before, words)
    now = fingerprints(control, watched)
    behind = insert_lsn(control)
    word = _word_of(fingerprint.look_word for fingerprint in now.values())
    since = landed.horizon if landed is not None else 0
    found = (_without_copied_files(control, each, since) for each in _differences(before, now.values()))
    suspects = tuple(
        suspect if not watched.by_name and _describes(facts, suspect) else suspect.with_reasons_only()
        for suspect in found
    )
    described = tuple(facts[suspect.fingerprint.relid] for suspect in suspects if suspect.differs.columns)
    look = CatalogueLook(word, horizon, landed, words, tuple(now.values()), suspects, described, behind, before)
    if guests := [suspect.fingerprint for suspect in suspects if suspect.differs.was_partition]:
        everything = relation_facts(control, relids=look.relids, keys=watched.keys, masks=watched.masks)
        look.note_reasons(_may_have_held(guests, before, now.values(), everything), shown=False)
    return look


def _may_have_held(
    guests: Iterable[Fingerprint],
    before: Iterable[Fingerprint],
    now: Collection[Fingerprint],
    facts: Iterable[RelationFacts] = (),
) -> Iterator[tuple[int, str]]:
    """Relids of partitioned tables, each with why rows may be gone: a followed table was a partition for a time, and
    nothing says of which. Both had the same columns at one of the looks, or have by the ``facts``, which include those
    that are not sent."""
    columns: dict[int, set[frozenset[str]]] = defaultdict(set)
    for seen in (*before, *now):
        columns[seen.relid].add(frozenset(column.attname for column in seen.columns))
    for known in facts:
        columns[known.relid].add(frozenset(column.attname for column in known.columns))
    partitioned = [table for table in now if any(part.partition_key is not None for part in table.parts)]
    for guest, table in product(guests, partitioned):
        if columns[guest.relid] & columns[table.relid]:
            yield table.relid, f"{guest.name} may have been a partition for a time"


def _facts_of_changed(
    control: Connection, watched: Watched, before: Iterable[Fingerprint], words: Mapping[QualifiedName, tuple[int, str]]
) -> dict[int, RelationFacts]:
    """The facts of the known tables whose fingerprint has changed, by relid."""
    known = {fingerprint.relid: fingerprint.word for fingerprint in before}
    changed = [relid for relid, word in words.values() if known.get(relid, word) != word]
    return (
        {
            facts.relid: facts
            for facts in relation_facts(control, relids=changed, keys=watched.keys, masks=watched.masks)
        }
        if changed
        else {}
    )


def _describes(facts: Mapping[int, RelationFacts], suspect: _Suspect) -> bool:
    """Whether the facts, which were read before the fingerprint, describe the same table: they must have its columns
    under the same numbers and names, and none that was dropped. The facts also have columns that are not sent."""
    known = facts.get(suspect.fingerprint.relid)
    if known is None:
        return False
    names = {column.attnum: column.attname for column in known.columns}
    now = {column.attnum: column.attname for column in suspect.fingerprint.columns}
    changed = {change.attnum for change in suspect.differs.columns}
    return now.items() <= names.items() and changed & names.keys() <= now.keys()


def certain_changes(before: Iterable[Fingerprint], now: Iterable[Fingerprint]) -> dict[QualifiedName, Differences]:
    """What the catalogue alone tells: by table, for those with a reason why rows may differ, or with DDL that left all
    rows as they are. Moved files may have an explanation."""
    return {
        suspect.fingerprint.name: suspect.differs
        for suspect in _differences(before, now)
        if suspect.differs.reasons or suspect.differs.columns
    }


def _differences(before: Iterable[Fingerprint], now: Iterable[Fingerprint]) -> tuple[_Suspect, ...]:
    by_relid = {fingerprint.relid: fingerprint for fingerprint in before}
    by_name = {fingerprint.name: fingerprint for fingerprint in by_relid.values()}
    suspects = []
    for fingerprint in now:
        known = by_relid.get(fingerprint.relid) or by_name.get(fingerprint.name)
        if known is None:
            suspects.append(_Suspect(fingerprint, Differences(()), is_new=True))
        elif known.word != fingerprint.word:
            suspects.append(_Suspect(fingerprint, differences(known, fingerprint)))
    return tuple(suspects)


def _without_copied_files(control: Connection, suspect: _Suspect, horizon: int) -> _Suspect:
    """The suspect without moved files that still hold rows from before: those were copied, not rewritten."""
    moved = suspect.differs.moved_files
    rewritten = tuple(file for file in moved if not holds_rows_from_before(control, file.name, horizon))
    return replace(suspect, differs=replace(suspect.differs, moved_files=rewritten))


def _changed(suspect: _Suspect) -> TableChanged:
    known, differs = suspect.fingerprint, suspect.differs
    return TableChanged(
        known.relid,
        known.name.nspname,
        known.name.relname,
        known.word,
        differs.reasons,
        differs.column_words,
        tuple(change.attnum for change in differs.columns if change.added),
        differs.regions,
    )


def _merged(tables: Iterable[TableChanged]) -> tuple[TableChanged, ...]:
    """One entry per table and fingerprint, with all its reasons."""
    by_table: dict[tuple[int, str], TableChanged] = {}
    for table in tables:
        known = by_table.get((table.relid, table.word))
        by_table[table.relid, table.word] = table if known is None else _both(known, table)
    return tuple(by_table.values())


def _both(known: TableChanged, more: TableChanged) -> TableChanged:
    return replace(
        known,
        reasons=tuple(dict.fromkeys(known.reasons + more.reasons)),
        columns=known.columns or more.columns,
        added=known.added or more.added,
        # without regions, any row may have changed
        regions=known.regions + more.regions if known.regions and more.regions else (),
    )


def _word_of(words: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(sorted(words)).encode(), digest_size=8).hexdigest()
