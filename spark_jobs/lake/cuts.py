"""Consistent cuts: one LSN, and for each table the Delta version that shows it as of that LSN.

Every apply that brings tables to one window's end appends a cut to ``{lake.path}/cuts``, one row per table. Reading
each table at the version in one cut shows the source database at one LSN, foreign keys included. The latest cut also
serves as an index: tables that it lists need not be opened while they are idle.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import write_deltalake

from spark_jobs.configuration import Lake
from spark_jobs.delta.append import after_commit
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_PROPERTY
from spark_jobs.delta.commit import KnownCommit, Transaction
from spark_jobs.delta.counted_files import CountedFiles, DataFile
from spark_jobs.delta.data_files import Layout
from spark_jobs.delta.files import decoded_path
from spark_jobs.delta.history import FOR_READERS
from spark_jobs.delta.table import commit_errors, open_table, table_errors
from spark_jobs.delta.upkeep import CountedTable, Expiry, Upkeep, compact_in_passing, keep_small
from spark_jobs.delta.written_tables import TableToWrite, commit_properties, is_made, keep_written, open_to_write
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.lake.unrepresentable import ALL_FITTED, Unrepresentable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.object_stores import storage_options
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns

# cut      counts up; the highest is the latest
# window   ordinal of the last window that every listed table has been brought to
# lsn      that window's end
# commits  how many commits of ours the table had
# commit_version, commit_id  the last of these; null in cuts of earlier versions, and where it is not known
# commit_cut  the first cut that had this commit; null in cuts of earlier versions
# differing  the columns in which the table differs from the source on purpose, as JSON; null if there are none
# unrepresentable  the values that were stored otherwise than the source had them, as JSON; null if there are none
# ends     the ends of days and hours that are the window's end (see ``PeriodsSeen``), as JSON; null if there are none
CUTS_SCHEMA = pa.schema(
    [
        pa.field("cut", pa.int64(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("nspname", pa.string(), nullable=False),
        pa.field("relname", pa.string(), nullable=False),
        pa.field("relid", pa.int64(), nullable=False),
        pa.field("generation", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("commits", pa.int64()),
        pa.field("commit_version", pa.int64()),
        pa.field("commit_id", pa.string()),
        pa.field("differing", pa.string()),
        pa.field("commit_cut", pa.int64()),
        pa.field("unrepresentable", pa.string()),
        pa.field("ends", pa.string()),
    ]
)

# the version of a table that is about to get a new snapshot: it is in no cut until the next apply
_FORGOTTEN = -1
# the version of the cuts' application transaction is the cut's number: of two writers that read the same latest cut,
# only one commits
_APP_ID = "pgcdc:cuts"
_MOVE_AWAY = "they may be moved away: the next sync writes new ones"
# short retention: no older version of this table is ever read
_TABLE_CONFIGURATION = {
    CHECKPOINT_PROPERTY: str(CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
CUTS_LAYOUT = Layout(CUTS_SCHEMA, statistics=("cut", "window", "lsn"), unique=())


@dataclass(frozen=True)
class TableCut:
    """One table in a cut: read it at Delta ``version``. ``relid`` and ``generation`` identify the snapshot that it grew
    from, ``commits`` is the number of our commits that it had, ``last_commit`` the last of them, if it is known.
    ``differing``: the columns in which it differs from the source on purpose. ``unrepresentable``: the values that were
    stored otherwise. ``commit_cut``: the number of the first cut that had ``last_commit``."""

    name: QualifiedName
    relid: int
    generation: str
    version: int
    commits: int = 0
    last_commit: KnownCommit | None = None
    differing: DifferingColumns = SAME_COLUMNS
    unrepresentable: Unrepresentable = ALL_FITTED
    commit_cut: int | None = field(default=None, compare=False)

    def after(self, earlier: TableCut | None, number: int) -> TableCut:
        """In the cut of this number, which follows one that has ``earlier``."""
        same = earlier is not None and earlier.last_commit == self.last_commit
        return replace(self, commit_cut=earlier.commit_cut if same and earlier else number)


@dataclass(frozen=True)
class Cut:
    """The state of ``tables`` at ``lsn``, the end of window ``ordinal``. ``written_at``: UTC, where it was read."""

    number: int
    ordinal: int
    lsn: Lsn
    tables: tuple[TableCut, ...]
    written_at: datetime | None = field(default=None, compare=False)

    def table(self, name: QualifiedName) -> TableCut | None:
        return self._by_name.get(name)

    def without_forgotten(self) -> Cut:
        """As it is read: see ``forget``."""
        return replace(self, tables=tuple(table for table in self.tables if table.version != _FORGOTTEN))

    @cached_property
    def _by_name(self) -> dict[QualifiedName, TableCut]:
        return {table.name: table for table in self.tables}


class NewestFile:
    """The file of the cuts' table that this process read or wrote last, and the latest cut in it."""

    name = ""
    cut: Cut | None = None


def latest_cut(lake: Lake) -> Cut | None:
    """The cut written last, None before the first. The cost does not grow with the number of cuts. Raises LakeError."""
    files = cut_files(lake)
    with table_errors(f"the cuts at {lake.cuts} cannot be read", hint=_MOVE_AWAY):
        return _cut_in(files, files.of_last_append())


def cut_files(lake: Lake) -> CountedFiles:
    """The files of the cuts' table."""
    return CountedFiles(decoded_path(lake.cuts), "cut", CUTS_SCHEMA)


def _latest(lake: Lake) -> tuple[TableToWrite | None, Cut | None]:
    """The cuts' table, and the latest cut of the version that it is open at."""
    what, files = f"the cuts at {lake.cuts}", cut_files(lake)
    cuts = open_to_write(files.path, what, hint=_MOVE_AWAY)
    if cuts is None:
        return None, None
    with table_errors(f"{what} cannot be read", hint=_MOVE_AWAY):
        return cuts, _cut_in(files, files.of_last_append(cuts.log))


def _cut_in(cuts: CountedFiles, files: Sequence[DataFile]) -> Cut | None:
    """The latest cut in these files, which are never changed, and their names never used again."""
    newest, name = cuts.path.storage.memory(NewestFile), files[0].path if len(files) == 1 else ""
    cut = newest.cut if name and name == newest.name else _cut_of(cuts.dataset(files).to_table())
    if name:
        newest.name, newest.cut = name, cut
    if cut is None:
        return None
    return replace(cut, written_at=datetime.fromtimestamp(max(file.modified for file in files) / 1000, UTC))


def _cut_of(rows: pa.Table) -> Cut | None:
    if not rows.num_rows:
        return None
    last = rows.filter(pc.equal(rows.column("cut"), pc.max(rows.column("cut"))))
    # beside it may be tables that an earlier cut lacked
    last = last.filter(pc.equal(last.column("window"), pc.max(last.column("window")))).to_pylist()
    cut = Cut(last[0]["cut"], last[0]["window"], Lsn(last[0]["lsn"]), tuple(map(_table_cut, last)))
    return cut.without_forgotten()


@contextmanager
def _every_cut(lake: Lake) -> Iterator[ds.Dataset | None]:
    """The rows of all cuts; None if there is none. Raises LakeError."""
    what, files = f"the cuts at {lake.cuts}", cut_files(lake)
    cuts = open_table(lake.cuts, what, hint=_MOVE_AWAY)
    with table_errors(f"{what} cannot be read", hint=_MOVE_AWAY):
        yield None if cuts is None else files.dataset(files.all(cuts))


def cut_until(lake: Lake, lsn: Lsn | None = None, *, before_window: int | None = None) -> Cut:
    """The newest cut at or before ``lsn`` and of a window before ``before_window``; without either, the newest of all.

    Tables that an earlier cut of the same window lists, and this one does not because they are being read again, are
    included as they were. Raises LakeError if there is no such cut.
    """
    with _every_cut(lake) as dataset:
        if dataset is None:
            raise LakeError(f"there are no cuts at {lake.cuts}", hint="`postgres-cdc sync` writes one")
        listed = dataset.to_table(columns=["cut", "window", "lsn"])
        listed = listed.sort_by([("window", "ascending"), ("cut", "ascending")])
        reached = listed if lsn is None else listed.filter(pc.field("lsn") <= int(lsn))
        reached = reached if before_window is None else reached.filter(pc.field("window") < before_window)
        if not reached.num_rows:
            oldest = f"the oldest is at {Lsn(listed.column('lsn')[0].as_py())}" if listed.num_rows else "they are empty"
            bound = f"at or before {lsn}" if before_window is None else f"of a window before {before_window}"
            raise LakeError(f"the cuts at {lake.cuts} hold none {bound}: {oldest}")
        row = reached.slice(reached.num_rows - 1).to_pylist()[0]
        return _whole_cut(dataset, Cut(row["cut"], row["window"], Lsn(row["lsn"]), ()))


def shown_ends(lake: Lake) -> frozenset[datetime]:
    """The ends of days and hours that have a cut. Raises LakeError."""
    what, files = f"the cuts at {lake.cuts}", cut_files(lake)
    with table_errors(f"{what} cannot be read", hint=_MOVE_AWAY):
        written = files.dataset(files.all()).to_table(["ends"], filter=pc.field("ends").is_valid())
    return frozenset[datetime]().union(*_read_ends(written).values())


def _read_ends(rows: pa.Table) -> dict[str, frozenset[datetime]]:
    """By the text that has them. All rows of a cut have the same one, which is read once."""
    return {
        text: frozenset(map(datetime.fromisoformat, json.loads(text)))
        for text in rows.column("ends").unique().to_pylist()
    }


def cut_at_end(lake: Lake, end: datetime) -> Cut | None:
    """The cut at the end of a day or an hour, None if there is none. Raises LakeError."""
    with _every_cut(lake) as dataset:
        if dataset is None:
            return None
        listed = dataset.to_table(["cut", "window", "lsn", "ends"], filter=pc.field("ends").is_valid()).sort_by("cut")
        with_it = pa.array([text for text, ends in _read_ends(listed).items() if end in ends], pa.string())
        ending = listed.filter(pc.is_in(listed.column("ends"), with_it))
        if not ending.num_rows:
            return None
        last = ending.slice(ending.num_rows - 1).to_pylist()[0]
        # the same window's cut may have been written again since
        newest = dataset.to_table(["cut"], filter=pc.field("window") == last["window"]).column("cut")
        return _whole_cut(dataset, Cut(pc.max(newest).as_py(), last["window"], Lsn(last["lsn"]), ()))


def _whole_cut(dataset: ds.Dataset, cut: Cut) -> Cut:
    """With the tables of all cuts of its window up to this one."""
    same = (pc.field("window") == cut.ordinal) & (pc.field("cut") <= cut.number)
    rows = dataset.to_table(filter=same & (pc.field("version") != _FORGOTTEN)).sort_by("cut").to_pylist()
    newest = {table.name: table for table in map(_table_cut, rows)}
    return replace(cut, tables=tuple(newest[name] for name in sorted(newest)))


def _table_cut(row: Mapping[str, Any]) -> TableCut:
    version, commit_id = row.get("commit_version"), row.get("commit_id")
    return TableCut(
        QualifiedName(row["nspname"], row["relname"]),
        row["relid"],
        row["generation"],
        row["version"],
        row.get("commits") or 0,
        None if version is None or commit_id is None else KnownCommit(version, commit_id),
        DifferingColumns.of(json.loads(row.get("differing") or "{}")),
        Unrepresentable.of(json.loads(row.get("unrepresentable") or "null")),
        row.get("commit_cut"),
    )


@again_when_overtaken
def write_cut(
    lake: Lake,
    ordinal: int,
    lsn: Lsn,
    tables: tuple[TableCut, ...],
    *,
    based_on: Cut | None = None,
    ends: tuple[str, ...] = (),
) -> Cut | None:
    """Append a cut and return the latest one. Nothing is appended if the latest cut is equal or of a later window, or
    if ``tables`` is empty; None if there is no cut at all.

    ``ends``: see ``PeriodsSeen``. To the cut at an end, which a later one has followed, those of ``tables`` are added
    that it lacks: they were stopped when it was written. ``based_on``: the latest cut when the work on ``tables``
    began. Tables that ``forget`` has taken out since are left out. Raises LakeError; OvertakenError when other writers
    commit first.
    """
    opened, latest = _latest(lake)
    if latest is not None and latest.ordinal > ordinal:
        earlier = Cut(latest.number, ordinal, lsn, tables)
        return _added_to(earlier, lake, opened, latest, ends) if opened and latest.tables and ends else latest
    if latest is not None and based_on is not None:
        removed_names = {table.name for table in based_on.tables} - {table.name for table in latest.tables}
        tables = tuple(table for table in tables if table.name not in removed_names)
    cut = Cut(latest.number + 1 if latest else 1, ordinal, lsn, tables)
    if not tables or (latest is not None and replace(cut, number=latest.number) == latest):
        return latest
    since = [table.after(latest.table(table.name) if latest else None, cut.number) for table in tables]
    cut = replace(cut, tables=tuple(since))
    _append_rows(lake, opened, _rows(cut, ends), cut)
    return cut


def _added_to(earlier: Cut, lake: Lake, opened: TableToWrite, latest: Cut, ends: tuple[str, ...]) -> Cut:
    """Add the tables that the cut of the window of ``earlier`` lacks. The latest cut is appended again with them, as
    its number must be the greatest; returns that."""
    files = cut_files(lake)
    with table_errors(f"the cuts at {lake.cuts} cannot be read", hint=_MOVE_AWAY):
        written = _whole_cut(files.dataset(files.all(opened.table)), earlier)
    missing = tuple(table for table in earlier.tables if written.table(table.name) is None)
    if missing:
        number = latest.number + 1
        latest = replace(latest, number=number)
        rows = [*_rows(latest), *_rows(replace(earlier, number=number, tables=missing), ends)]
        _append_rows(lake, opened, rows, latest)
    return latest


def _rows(cut: Cut, ends: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        {
            "cut": cut.number,
            "window": cut.ordinal,
            "lsn": int(cut.lsn),
            "nspname": table.name.nspname,
            "relname": table.name.relname,
            "relid": table.relid,
            "generation": table.generation,
            "version": table.version,
            "commits": table.commits,
            "commit_version": table.last_commit.version if table.last_commit else None,
            "commit_id": table.last_commit.id if table.last_commit else None,
            "differing": json.dumps(asdict(table.differing)) if table.differing else None,
            "unrepresentable": json.dumps(table.unrepresentable.fields) if table.unrepresentable else None,
            "commit_cut": table.commit_cut,
            "ends": json.dumps(ends) if ends else None,
        }
        for table in cut.tables
    ]


def _append_rows(lake: Lake, opened: TableToWrite | None, rows: list[dict[str, Any]], latest: Cut) -> None:
    """``latest``: the latest cut by then, which is in the rows."""
    with table_errors(f"the cuts at {lake.cuts} cannot be written", hint=_MOVE_AWAY):
        _append(lake, opened, pa.Table.from_pylist(rows, schema=CUTS_SCHEMA), latest)
    compact_in_passing(CountedTable(cut_files(lake), CUTS_LAYOUT), latest.number)


def _append(lake: Lake, opened: TableToWrite | None, rows: pa.Table, latest: Cut) -> None:
    """Append to the version that the latest cut was read from: a cut written in between makes this fail."""
    commit = commit_properties(Transaction(_APP_ID, latest.number))
    before = set(opened.table.file_uris()) if opened else set()
    conflict = OvertakenError(f"another process has written the cuts at {lake.cuts}", hint="run it again")
    try:
        with commit_errors(lake.cuts, conflict, is_made=partial(is_made, opened, commit) if opened else None):
            write_deltalake(
                opened.table if opened else lake.cuts,
                rows,
                mode="append" if opened else "error",
                schema_mode="merge" if opened else None,  # in lakes created by an older version a column is missing
                configuration=None if opened else dict(_TABLE_CONFIGURATION),
                storage_options=None if opened else storage_options(lake.cuts),
                commit_properties=commit,
                post_commithook_properties=after_commit(commit),
            )
            if opened is not None:
                added = set(opened.table.file_uris()) - before
                if len(added) == 1:
                    newest = lake.storage.memory(NewestFile)
                    newest.name, newest.cut = added.pop().rpartition("/")[2], latest.without_forgotten()
                keep_written(opened, commit)
    except LakeError:
        if opened is None and latest_cut(lake) is not None:  # another process has created them
            raise conflict from None
        raise


def forget(lake: Lake, names: Collection[QualifiedName]) -> None:
    """Take tables out of the latest cut before they get a new snapshot: the cut will no longer be right for them."""
    latest = latest_cut(lake)
    if latest is None:
        return
    if any(table.name in names for table in latest.tables):
        marked = (replace(table, version=_FORGOTTEN) if table.name in names else table for table in latest.tables)
        write_cut(lake, latest.ordinal, latest.lsn, tuple(marked))


def keep_cuts_small(lake: Lake, latest: Cut, age: timedelta) -> Upkeep:
    """Delete cuts written longer ago than ``age``, except the ``latest`` one and those since.

    Raises LakeError; OvertakenError when another process does the same.
    """
    table = CountedTable(cut_files(lake), CUTS_LAYOUT)
    return keep_small(table, _TABLE_CONFIGURATION, Expiry(age, latest.number), FOR_READERS)
