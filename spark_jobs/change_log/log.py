"""The change log: one Delta table per slot, written and read without a JVM.

Every window is one commit: its rows, the catalogue's facts and the marker, under an application transaction whose
version is the window's ordinal. https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA, RowKind
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.delta.append import Layout, append
from spark_jobs.delta.files import WRITABLE, table_filesystem
from spark_jobs.errors import LakeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.relation_facts import RelationFacts

_STATS_COLUMNS = "window,commit_lsn,ordinal,kind,relid"
_TABLE_CONFIGURATION = {"delta.dataSkippingStatsColumns": _STATS_COLUMNS}
_LAYOUT = Layout(CHANGE_LOG_SCHEMA, statistics=tuple(_STATS_COLUMNS.split(",")), unique=("data",))
# of a stream of rows that may be large
_BATCH_ROWS = 4 << 10
# of rows that are no messages: statistics then tell where they lie
_NO_ORDINAL = -1


@dataclass(frozen=True)
class LandedFacts:
    """What the catalogue said of one relation version when its window was captured."""

    window: int
    relid: int
    version: int
    facts: RelationFacts


class ChangeLog:
    """The log at ``path``, a local folder or a URI; opened anew by each call, so an instance holds no state."""

    def __init__(self, path: str) -> None:
        # pyarrow takes the percent-encoded parts of a file URI for names
        self.path = url2pathname(urlsplit(path).path) if path.startswith("file:") else path

    def checkpoint(self) -> WindowMarker | None:
        """The last landed window's marker, None when nothing was landed yet. Reads one file, scans nothing."""
        table = self._table()
        if table is None:
            return None
        last = _last_ordinal(table)
        found = self._markers(table, pc.field("window") == last) if last is not None else ()
        return found[-1] if found else None

    def markers(self, after_ordinal: int = -1) -> tuple[WindowMarker, ...]:
        """The markers of the windows after this ordinal, in order."""
        table = self._table()
        return self._markers(table, pc.field("window") > after_ordinal) if table is not None else ()

    def create(self) -> None:
        """Make the empty table; one that is there stays as it is. Raises LakeError."""
        # deltalake 1.6 decodes a path once more than it encodes it, and looks for the log elsewhere than it wrote it
        if ("%25" if "://" in self.path else "%") in self.path:
            raise LakeError(f"the change log {self.path} cannot be made: a name in it holds a '%'", hint=WRITABLE)
        try:
            DeltaTable.create(
                self.path, CHANGE_LOG_SCHEMA, mode="ignore", configuration=_TABLE_CONFIGURATION, name="change_log"
            )
        except (DeltaError, OSError) as error:
            raise LakeError(f"the change log {self.path} cannot be made: {error}", hint=WRITABLE) from None

    def land(self, identity: SlotIdentity, ordinal: int, rows: Iterable[pa.RecordBatch]) -> bool:
        """Commit one window's rows, its marker among them; False when this ordinal is landed already, rows untaken.

        ``rows`` are streamed: memory does not grow with the window. Errors that ``rows`` raises come out as they are,
        and nothing is committed then. Raises LakeError: another writer came between, or the lake cannot be written.
        """
        table = self._table()
        if table is None:
            raise LakeError(f"there is no change log at {self.path}", hint="`postgres-cdc sync` makes it")
        landed = table.transaction_version(identity.app_id)
        if landed is not None and landed >= ordinal:
            return False
        commit = CommitProperties(
            custom_metadata={"window": str(ordinal), "slot": identity.slot},
            app_transactions=[Transaction(identity.app_id, ordinal)],
        )
        try:
            # the handle that was checked: a commit of this application in between makes it fail
            append(table, self.path, rows, _LAYOUT, commit)
        except CommitFailedError as error:
            raise LakeError(
                f"window {ordinal} was not landed in {self.path}: another process writes this change log",
                hint="stop it, or wait until it is done; nothing is lost",
            ) from error
        except DeltaError as error:
            raise LakeError(f"the change log {self.path} cannot be written: {error}", hint=WRITABLE) from None
        return True

    def read(
        self, relids: Sequence[int], first_ordinal: int, last_ordinal: int, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of these relations in the windows ``first_ordinal`` to ``last_ordinal``, both inclusive.

        All kinds that have a relid: changes, RELATION, TRUNCATE, FACTS. In no particular order. Only files that may
        hold such rows are read.
        """
        table = self._table()
        if table is None:
            raise LakeError(f"there is no change log at {self.path}", hint="run `postgres-cdc capture` first")
        condition = (pc.field("window") >= first_ordinal) & (pc.field("window") <= last_ordinal)
        condition &= pc.field("relid").isin(pa.array(list(relids), pa.int64()))
        return self._scan(table, condition, columns)

    def facts(
        self, first_ordinal: int, last_ordinal: int, relids: Sequence[int] | None = None
    ) -> tuple[LandedFacts, ...]:
        """What was landed of the catalogue in these windows, in window order; of all relations when relids is None."""
        table = self._table()
        if table is None:
            return ()
        condition = (pc.field("window") >= first_ordinal) & (pc.field("window") <= last_ordinal)
        condition &= (pc.field("ordinal") == _NO_ORDINAL) & (pc.field("kind") == RowKind.FACTS.value)
        if relids is not None:
            condition &= pc.field("relid").isin(pa.array(list(relids), pa.int64()))
        rows = self._scan(table, condition, ["window", "commit_lsn", "relid", "version", "data"])
        rows = rows.sort_by([("window", "ascending"), ("commit_lsn", "ascending")])
        return tuple(
            LandedFacts(row["window"], row["relid"], row["version"], RelationFacts.from_json(row["data"]))
            for row in rows.to_pylist()
        )

    def fingerprints(self, ordinal: int) -> tuple[Fingerprint, ...]:
        """Those that were landed with this window. Raises LakeError when they are damaged."""
        table = self._table()
        if table is None:
            return ()
        condition = (pc.field("window") == ordinal) & (pc.field("ordinal") == _NO_ORDINAL)
        rows = self._scan(table, condition & (pc.field("kind") == RowKind.CATALOGUE.value), ["data"])
        try:
            return tuple(Fingerprint.of(*data.decode().split(" ", 1)) for data in rows.column("data").to_pylist())
        except (ValueError, TypeError) as error:
            raise LakeError(f"the fingerprints of window {ordinal} in {self.path} are damaged") from error

    def logical_messages(self, ordinals: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of kind MESSAGE in these windows, streamed: memory does not grow with them. Not empty batches."""
        table = self._table()
        if table is None:
            return
        condition = pc.field("window").isin(pa.array(list(ordinals), pa.int64()))
        # no relid: by that alone most files and row groups are passed over
        condition &= pc.field("relid").is_null() & (pc.field("kind") == RowKind.MESSAGE.value)
        try:
            dataset = table.to_pyarrow_dataset(filesystem=table_filesystem(self.path))
            batches = dataset.to_batches(
                columns=list(columns), filter=condition, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )
            yield from (batch for batch in batches if batch.num_rows)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise LakeError(f"the change log {self.path} cannot be read: {error}") from None

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise LakeError(f"the change log {self.path} cannot be read: {error}") from None

    def _markers(self, table: DeltaTable, condition: pc.Expression) -> tuple[WindowMarker, ...]:
        condition &= (pc.field("ordinal") == _NO_ORDINAL) & (pc.field("kind") == RowKind.WINDOW.value)
        rows = self._scan(table, condition, ["data"])
        markers = [WindowMarker.from_json(data) for data in rows.column("data").to_pylist()]
        return tuple(sorted(markers, key=lambda marker: marker.ordinal))

    def _scan(self, table: DeltaTable, condition: pc.Expression, columns: Sequence[str] | None) -> pa.Table:
        try:
            dataset = table.to_pyarrow_dataset(filesystem=table_filesystem(self.path))
            return dataset.to_table(columns=list(columns) if columns else None, filter=condition)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise LakeError(f"the change log {self.path} cannot be read: {error}") from None


def marker_row(marker: WindowMarker) -> pa.RecordBatch:
    """The marker as a row: at its window's end."""
    row = {
        "window": marker.ordinal,
        "commit_lsn": marker.window.hi,
        "ordinal": _NO_ORDINAL,
        "kind": RowKind.WINDOW.value,
        "data": marker.to_json().encode(),
    }
    return pa.RecordBatch.from_pylist([row], schema=CHANGE_LOG_SCHEMA)


def facts_rows(ordinal: int, seen: Iterable[RelationSeen], facts: Iterable[RelationFacts]) -> pa.RecordBatch:
    """One FACTS row per relation version, before the transaction that first names it; none for a table that is gone."""
    by_relid = {fact.relid: fact for fact in facts}
    rows = [
        {
            "window": ordinal,
            "commit_lsn": relation.commit_lsn,
            "ordinal": _NO_ORDINAL,
            "kind": RowKind.FACTS.value,
            "relid": relation.relid,
            "version": relation.version,
            "data": by_relid[relation.relid].to_json().encode(),
        }
        for relation in seen
        if relation.relid in by_relid
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)


def catalogue_rows(ordinal: int, lsn: Lsn, fingerprints: Iterable[Fingerprint]) -> pa.RecordBatch:
    """One CATALOGUE row per table; ``lsn`` is the window's start, as they hold from there on."""
    rows = [
        {
            "window": ordinal,
            "commit_lsn": int(lsn),
            "ordinal": _NO_ORDINAL,
            "kind": RowKind.CATALOGUE.value,
            "data": f"{fingerprint.word} {fingerprint.text}".encode(),
        }
        for fingerprint in fingerprints
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)


def _last_ordinal(table: DeltaTable) -> int | None:
    """From the files' statistics."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return None
    last = pc.max(actions.column("max.window")).as_py()
    return None if last is None else int(last)
