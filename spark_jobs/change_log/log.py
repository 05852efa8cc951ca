"""The change log: one Delta table per slot, written and read without a JVM.

Every window is one commit of its rows, the catalogue's facts and the marker, with an application transaction whose
version is the window's ordinal. https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA, RowKind
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.delta.append import append
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_PROPERTY
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.counted_files import CountedFiles, DataFile
from spark_jobs.delta.data_files import Layout
from spark_jobs.delta.files import REACHABLE, WRITABLE, decoded_path
from spark_jobs.delta.table import commit_errors, delta_identifier, open_table, table_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.delta.written_tables import commit_properties, is_made, keep_written, open_to_write
from spark_jobs.errors import LakeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.object_stores import storage_options
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.storage import Location, Recent

_STATS_COLUMNS = "window,commit_lsn,ordinal,kind,relid"
# Delta's commits are only needed until a checkpoint covers them; windows are kept, whatever these properties say
LOG_CONFIGURATION = {
    CHECKPOINT_PROPERTY: str(CHECKPOINT_INTERVAL),
    "delta.dataSkippingStatsColumns": _STATS_COLUMNS,
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
LOG_LAYOUT = Layout(CHANGE_LOG_SCHEMA, statistics=tuple(_STATS_COLUMNS.split(",")), unique=("data",))
# batch size for streams of messages, which may be large
_BATCH_ROWS = 4 << 10
# the ordinal of rows that are not messages, so that they are found by statistics
NO_ORDINAL = -1


def no_change_log(path: Location) -> LakeError:
    return LakeError(f"there is no change log at {path}", hint="`postgres-cdc sync` creates slot and log")


@dataclass(frozen=True)
class LandedFacts:
    """The catalogue's facts about a relation when ``window`` was captured. ``version`` is the relation version that
    they describe, None if they were landed because columns changed."""

    window: int
    relid: int
    version: int | None
    facts: RelationFacts


class _MarkersOfFiles(Recent[tuple[WindowMarker, ...]]):
    most = 16


class ChangeLog:
    """The log at ``path``, a local folder or a URI. Each call opens it again, so an instance holds no state."""

    def __init__(self, path: str) -> None:
        self.path = decoded_path(Location.of(path))
        self._what = f"the change log {self.path}"
        self._anew = f"move {self.path} away, set source.adopt_slot: true and sync: every table gets a new snapshot"
        self._hint = f"{REACHABLE}; if files of it are gone, {self._anew}"
        self.files = CountedFiles(self.path, "window", CHANGE_LOG_SCHEMA)

    def checkpoint(self) -> WindowMarker | None:
        """The last landed window's marker, None if nothing was landed yet. The cost does not grow with the log."""
        markers = self._markers(self._listed(self.files.of_last_append))
        return markers[-1] if markers else None

    def landed_at(self) -> datetime | None:
        """When the last window was landed, None before the first. The cost does not grow with the log."""
        return max(map(_appended_at, self._listed(self.files.of_last_append)), default=None)

    def markers(self, after_ordinal: int = -1) -> tuple[WindowMarker, ...]:
        """The markers of the windows after this ordinal, in order. The cost depends on their number."""
        markers = self._markers(self.files_after(after_ordinal))
        return tuple(marker for marker in markers if marker.ordinal > after_ordinal)

    def marker(self, ordinal: int) -> WindowMarker | None:
        """The marker of this window, None if the log does not hold it."""
        files = tuple(file for file in self.files_after(ordinal - 1) if file.may_hold("window", ordinal))
        return next((marker for marker in self._markers(files) if marker.ordinal == ordinal), None)

    def first_window(self) -> WindowMarker | None:
        """The marker of the oldest window that retention has left in the log. After it none is missing."""
        return next((first for _, first in self._files_of_windows()), None)

    def first_landed_at(self) -> datetime | None:
        """By when the oldest window that is left was landed, None if there is none: that day, as it is compacted."""
        return next((_appended_at(file) for file, _ in self._files_of_windows()), None)

    def _files_of_windows(self) -> Iterator[tuple[DataFile, WindowMarker]]:
        """Each file with the marker of its first window, oldest first. Older files may hold fingerprints kept from
        expired windows, without markers."""
        for file in self._listed(self.files.all):
            if markers := self._markers([file]):
                yield file, markers[0]

    def create(self) -> None:
        """Create the empty table; an existing one is not changed. Raises LakeError."""
        # deltalake 1.6 decodes a path once more than it encodes it: it would look for the log in the wrong place
        if ("%25" if "://" in self.path else "%") in self.path:
            raise LakeError(f"{self._what} cannot be created: its path holds a '%'", hint=WRITABLE)
        with table_errors(f"{self._what} cannot be created", hint=WRITABLE):
            try:
                DeltaTable.create(
                    self.path,
                    CHANGE_LOG_SCHEMA,
                    mode="ignore",
                    configuration=LOG_CONFIGURATION,
                    name="change_log",
                    storage_options=storage_options(self.path),
                    commit_properties=CommitProperties(max_commit_retries=0),  # else it would create it once more
                )
            except CommitFailedError:
                # another process was faster; or this one has created it, the answer was lost, and it was asked again
                if self._table() is None:
                    raise

    def id(self) -> str | None:
        """What tells this change log from any other, also where it was moved to; None if there is no log."""
        opened = open_table(self.path, self._what, hint=self._hint)
        return None if opened is None else str(opened.metadata().id)

    def land(self, identity: SlotIdentity, ordinal: int, rows: Iterable[pa.RecordBatch]) -> bool:
        """Commit one window's rows, which include its marker. False, without reading ``rows``, if this ordinal has
        already been landed.

        ``rows`` are streamed: memory does not grow with the window. Errors that ``rows`` raises are passed on, and
        nothing is committed. Raises LakeError if another writer has committed first, or the lake cannot be written.
        """
        opened = open_to_write(self.path, self._what, hint=self._hint)
        if opened is None:
            raise no_change_log(self.path)
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            landed = opened.log.transaction_version(identity.app_id)
        if landed is not None and landed >= ordinal:
            self._require_window(landed, identity, opened.log)
            return False
        if landed is not None and landed != ordinal - 1:
            raise LakeError(
                f"window {ordinal} cannot be landed in {self.path}: it ends with window {landed}, so another writer has"
                " replaced a commit",
                hint="run it again: what is missing is found, and named",
            )
        commit = commit_properties(Transaction(identity.app_id, ordinal), window=str(ordinal), slot=identity.slot)
        conflict = LakeError(
            f"window {ordinal} was not landed in {self.path}: another process writes this change log",
            hint="stop it, or wait until it is done; nothing is lost",
        )
        with commit_errors(self.path, conflict, is_made=partial(is_made, opened, commit)):
            # through the handle that was checked above: a commit of this application in between makes the append fail
            append(opened.table, self.path, rows, LOG_LAYOUT, commit)
            keep_written(opened, commit)
        return True

    def require_not_set_back(self, identity: SlotIdentity) -> None:
        """Raises LakeError if the log no longer holds the window that was landed last."""
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            log = TransactionLog.open(self.path)
            landed = None if log is None else log.transaction_version(identity.app_id)
        if log is not None and landed is not None:
            self._require_window(landed, identity, log)

    def _require_window(self, landed: int, identity: SlotIdentity, log: TransactionLog) -> None:
        last = self.checkpoint()
        if last is not None and last.ordinal >= landed:
            return
        landing = Transaction(identity.app_id, landed)
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            version = next((commit.version for commit in log.commits() if landing in commit.transactions), None)
        back = "" if version is None else f"RESTORE {delta_identifier(self.path)} TO VERSION AS OF {version}; else "
        raise LakeError(
            f"{self._what} no longer holds window {landed}, its newest: somebody has restored an earlier version of it",
            hint=f"{back}{self._anew}",
        )

    def read(
        self, relids: Sequence[int], first_ordinal: int, last_ordinal: int, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of these relations in the windows ``first_ordinal`` to ``last_ordinal``, both inclusive.

        They are of all kinds that have a relid (changes, RELATION, TRUNCATE, FACTS) and in no particular order. Only
        files that may hold such rows are read. Raises LakeError.
        """
        files = self.files_after(first_ordinal - 1)
        if not files and self._table() is None:
            raise LakeError(f"there is no change log at {self.path}", hint="run `postgres-cdc capture` first")
        return self._scan(files, _between(first_ordinal, last_ordinal) & _of_relations(relids), columns)

    def facts(
        self, first_ordinal: int, last_ordinal: int, relids: Sequence[int] | None = None
    ) -> tuple[LandedFacts, ...]:
        """The catalogue's facts landed with these windows, in window order; of all relations if ``relids`` is None."""
        condition = _between(first_ordinal, last_ordinal) & rows_of_kind(RowKind.FACTS)
        if relids is not None:
            condition &= _of_relations(relids)
        files = self.files_after(first_ordinal - 1)
        rows = self._scan(files, condition, ["window", "commit_lsn", "relid", "version", "data"])
        rows = rows.sort_by([("window", "ascending"), ("commit_lsn", "ascending")])
        return tuple(
            LandedFacts(row["window"], row["relid"], row["version"], RelationFacts.from_json(row["data"]))
            for row in rows.to_pylist()
        )

    def last_look(self, marker: WindowMarker) -> tuple[Fingerprint, ...]:
        """The look at the followed tables that was the last one when ``marker`` was landed; empty without any."""
        return () if marker.catalogue is None else self.fingerprints(marker.catalogue.window)

    def fingerprints(self, ordinal: int) -> tuple[Fingerprint, ...]:
        """The fingerprints that were landed with this window. Raises LakeError when they are damaged."""
        return _fingerprints(self._catalogue_rows(ordinal), ordinal, self.path)

    def annotations(self, relid: int, ordinal: int) -> TableAnnotations | None:
        """What the source said about this table when the look of this window was landed; None if that is not known."""
        rows = self._catalogue_rows(ordinal)
        # the others need not be parsed
        fingerprints = _fingerprints(rows.filter(pc.match_substring(rows["data"], f" [{relid}, ")), ordinal, self.path)
        return next((each.annotations for each in fingerprints if each.relid == relid), None)

    def _catalogue_rows(self, ordinal: int) -> pa.Table:
        files = self.files_after(ordinal - 1)
        return self._scan(files, _between(ordinal, ordinal) & rows_of_kind(RowKind.CATALOGUE), ["data"])

    def logical_messages(self, ordinals: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of kind MESSAGE in these windows, streamed: memory does not grow with them. No batch is empty."""
        files = self.files_after(min(ordinals, default=0) - 1)
        condition = pc.field("window").isin(pa.array(list(ordinals), pa.int64()))
        # messages have no relid: by this condition most files and row groups are skipped
        condition &= pc.field("relid").is_null() & (pc.field("kind") == RowKind.MESSAGE.value)
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            batches = self.files.dataset(files).to_batches(
                columns=list(columns), filter=condition, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )
            yield from (batch for batch in batches if batch.num_rows)

    def files_after(self, ordinal: int) -> tuple[DataFile, ...]:
        """The files that may hold rows of windows after this ordinal, in the order of their windows."""
        return self._listed(partial(self.files.after, ordinal))

    def scan(
        self, condition: pc.Expression, columns: Sequence[str], *, after_ordinal: int = -1
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the windows after this ordinal that meet ``condition``, streamed in no particular order: memory
        does not grow with them."""
        files = self.files_after(after_ordinal)
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            batches = self.files.dataset(files).to_batches(columns=list(columns), filter=condition)
            yield from (batch for batch in batches if batch.num_rows)

    def _table(self) -> DeltaTable | None:
        return open_table(self.path, self._what, hint=self._hint)

    def _markers(self, files: Sequence[DataFile]) -> tuple[WindowMarker, ...]:
        if len(files) != 1:
            return self._markers_of(files)
        # the newest one is asked for several times in each sync. Files are never changed, their names never used again
        remembered = self.path.storage.memory(_MarkersOfFiles)
        return remembered.value(f"{self.path}/{files[0].path}", lambda: self._markers_of(files))

    def _markers_of(self, files: Sequence[DataFile]) -> tuple[WindowMarker, ...]:
        rows = self._scan(files, rows_of_kind(RowKind.WINDOW), ["data"])
        try:
            markers = [WindowMarker.from_json(data) for data in rows.column("data").to_pylist()]
        except (KeyError, TypeError, ValueError) as error:
            raise LakeError(
                f"a window's marker in {self.path} is not understood: a newer version of postgres-cdc has written it,"
                " or it is damaged",
                hint="use the version that has written to this lake last; nothing was changed",
            ) from error
        return tuple(sorted(markers, key=lambda marker: marker.ordinal))

    def _listed(self, files: Callable[[], tuple[DataFile, ...]]) -> tuple[DataFile, ...]:
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            return files()

    def _scan(self, files: Sequence[DataFile], condition: pc.Expression, columns: Sequence[str] | None) -> pa.Table:
        with table_errors(f"{self._what} cannot be read", hint=self._hint):
            return self.files.rows(files, condition, columns)


def _fingerprints(rows: pa.Table, ordinal: int, path: str) -> tuple[Fingerprint, ...]:
    try:
        return tuple(Fingerprint.of(*data.decode().split(" ", 1)) for data in rows.column("data").to_pylist())
    except (ValueError, TypeError, KeyError) as error:
        raise LakeError(f"the fingerprints of window {ordinal} in {path} are damaged") from error


def _appended_at(file: DataFile) -> datetime:
    return datetime.fromtimestamp(file.modified / 1000, UTC)


def _between(first: int, last: int) -> pc.Expression:
    return (pc.field("window") >= first) & (pc.field("window") <= last)


def _of_relations(relids: Sequence[int]) -> pc.Expression:
    return pc.field("relid").isin(pa.array(list(relids), pa.int64()))


def rows_of_kind(kind: RowKind) -> pc.Expression:
    """The condition for rows of a kind that is not a plugin message: WINDOW, FACTS, CATALOGUE. Their ordinal is -1."""
    return (pc.field("ordinal") == NO_ORDINAL) & (pc.field("kind") == kind.value)


def marker_row(marker: WindowMarker) -> pa.RecordBatch:
    """The marker as a row, at its window's end."""
    return _rows([_row(marker.ordinal, marker.window.hi, RowKind.WINDOW, marker.to_json())])


def facts_rows(ordinal: int, relations: Iterable[RelationSeen], facts: Iterable[RelationFacts]) -> pa.RecordBatch:
    """One FACTS row per relation version, before the transaction that first uses it; none for a dropped table."""
    by_relid = {fact.relid: fact for fact in facts}
    return _rows(
        {
            **_row(ordinal, relation.commit_lsn, RowKind.FACTS, by_relid[relation.relid].to_json()),
            "relid": relation.relid,
            "version": relation.version,
        }
        for relation in relations
        if relation.relid in by_relid
    )


def changed_facts_rows(ordinal: int, lsn: Lsn, facts: Iterable[RelationFacts]) -> pa.RecordBatch:
    """One FACTS row per table whose columns changed, without a relation version; ``lsn`` is the window's end."""
    return _rows({**_row(ordinal, lsn, RowKind.FACTS, fact.to_json()), "relid": fact.relid} for fact in facts)


def catalogue_rows(ordinal: int, lsn: Lsn, fingerprints: Iterable[Fingerprint]) -> pa.RecordBatch:
    """One CATALOGUE row per table; ``lsn`` is the window's start, from which on the fingerprints hold."""
    return _rows(
        _row(ordinal, lsn, RowKind.CATALOGUE, f"{fingerprint.word} {fingerprint.text}") for fingerprint in fingerprints
    )


def _row(ordinal: int, lsn: int, kind: RowKind, data: str) -> dict[str, Any]:
    return {
        "window": ordinal,
        "commit_lsn": int(lsn),
        "ordinal": NO_ORDINAL,
        "kind": kind.value,
        "data": data.encode(),
    }


def _rows(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=CHANGE_LOG_SCHEMA)
