"""Which Delta version of each table to read, so that all are at one LSN."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spark_jobs.change_log.chapters import begun_later, chapters_of
from spark_jobs.change_log.commit_times import first_commit_after, last_commit_time
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.delta.files import ask_tables
from spark_jobs.delta.table import log_errors
from spark_jobs.delta.transaction_log import LogFolder
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import Cut, cut_at_end, cut_until, latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.points import Point
from spark_jobs.tables.at_source import all_followed_names
from spark_jobs.tables.ledger import Ledger

_NEXT = "wait for the next sync, or run `postgres-cdc sync`"
_LATER = "choose a later day"


@dataclass(frozen=True)
class TableVersion:
    """The Delta table at ``path``, to be read at ``delta_version``."""

    name: QualifiedName
    delta_version: int
    path: str


@dataclass(frozen=True)
class ConsistentCut:
    """All ``tables`` as they were at ``lsn``, the end of window ``window``. ``commit_time`` is that of the last
    transaction before it in the change log, None if there is none."""

    lsn: Lsn
    commit_time: datetime | None
    window: int
    tables: tuple[TableVersion, ...]


@dataclass(frozen=True)
class Incomplete:
    """Why a day or an hour has no cut, or not yet, and what to do about it."""

    why: str
    hint: str


def consistent_cut(pipeline: Pipeline, at: Point | None = None) -> ConsistentCut:
    """The newest cut at or before ``at``, by default the latest; of a day's or an hour's end, exactly its own.

    Raises LakeError if there is none, or if a version that it names is gone; GapError if the change log no longer
    reaches back to that time.
    """
    if isinstance(at, datetime):
        cut = cut_at_end(pipeline.lake, at)
        if cut is None:
            log = ChangeLog(pipeline.lake.change_log)
            after, chapters = first_commit_after(log, at), chapters_of(log)
            begun = chapters.begun_after(at) if chapters is not None else None
            if begun is not None and begun.first == 0 and begun.began is not None:
                raise begun_later(log, begun.began, at)
            bounds = [*([after.window] if after is not None else []), *([begun.first] if begun is not None else [])]
            cut = cut_until(pipeline.lake, before_window=min(bounds, default=None))
    else:
        cut = cut_until(pipeline.lake, at)
    if at is not None:
        _require_readable(pipeline, cut)
    return _of(pipeline, cut)


def period_cut(pipeline: Pipeline, end: datetime, *, waits: bool = True) -> ConsistentCut | Incomplete:
    """The cut at ``end`` of a day or an hour: everything that was committed before it, and nothing else.

    ``waits``: it is incomplete as long as a stopped table lacks it that may still get there. A table that was read
    anew after ``end`` never does. Raises LakeError.
    """
    cut = cut_at_end(pipeline.lake, end)
    if cut is None:
        return _why_incomplete(pipeline, end)
    missing = [name for name in all_followed_names(pipeline) if cut.table(name) is None]
    ledger = Ledger.required(pipeline.lake).reading(missing)
    behind = [name for name in missing if name in ledger.errors or _may_reach(ledger, name, cut)]
    if waits and behind:
        names = ", ".join(map(str, behind))
        return Incomplete(
            f"{names} cannot be brought to {end.isoformat()}, LSN {cut.lsn}: stopped before",
            "`postgres-cdc sync` says why; or set when_a_table_stops: leave_out in time_partitions",
        )
    _require_readable(pipeline, cut)
    return _of(pipeline, cut)


def _may_reach(ledger: Ledger, name: QualifiedName, cut: Cut) -> bool:
    state = ledger.states.get(name)
    return state is not None and not state.is_lost and state.ordinal < cut.ordinal


def _require_readable(pipeline: Pipeline, cut: Cut) -> None:
    """Raises LakeError for a version that Delta's log does not have any more: versions stay for as long as cuts, unless
    rows were forgotten since."""
    versions = {table.name: table.version for table in cut.tables}

    def is_there(name: QualifiedName) -> bool:
        path = pipeline.lake.table(name)
        with log_errors(str(name), path):
            return LogFolder.of(path).has_version(versions[name])

    for name, answer in ask_tables(is_there, [*versions]).items():
        if isinstance(answer, LakeError):
            raise answer
        if not answer:
            raise LakeError(
                f"{name} cannot be read at {cut.lsn} now: its Delta version {versions[name]} is gone, as earlier ones"
                " are after `postgres-cdc forget`",
                hint="choose a later LSN or time, or leave it out for the newest cut",
            )


def _of(pipeline: Pipeline, cut: Cut) -> ConsistentCut:
    tables = tuple(TableVersion(table.name, table.version, pipeline.lake.table(table.name)) for table in cut.tables)
    time = last_commit_time(ChangeLog(pipeline.lake.change_log), cut.ordinal)
    return ConsistentCut(cut.lsn, time, cut.ordinal, tables)


def _why_incomplete(pipeline: Pipeline, end: datetime) -> Incomplete:
    """There is no cut at ``end``."""
    log = ChangeLog(pipeline.lake.change_log)
    settled, text = _settled(log.checkpoint()), end.isoformat()
    if settled is None or settled < end:
        upto = f" up to {settled.isoformat()}" if settled is not None else ""
        return Incomplete(f"what was committed before {text} is not captured yet{upto}", _NEXT)
    captured = next((marker for marker in log.markers() if text in marker.ends), None)
    shown = latest_cut(pipeline.lake)
    if captured is not None and (shown is None or shown.ordinal < captured.ordinal):
        return Incomplete(f"{text} is captured, at LSN {captured.window.hi}, but the tables do not show it yet", _NEXT)
    chapters = chapters_of(log)
    for chapter in chapters.all if chapters is not None else ():
        before = _settled(log.marker(chapter.first - 1))
        if before is not None and chapter.began is not None and before < end <= chapter.began:
            what = f"{text} lies in the break before LSN {chapter.landed.lo}: nothing shows what was committed by then"
            return Incomplete(what, _LATER)
    why = "retention.cuts has removed it" if captured is not None else "time_partitions was not configured then"
    return Incomplete(f"there is no cut at {text}: {why}", _LATER)


def _settled(marker: WindowMarker | None) -> datetime | None:
    return None if marker is None or marker.periods is None else datetime.fromisoformat(marker.periods.settled)
