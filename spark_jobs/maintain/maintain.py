"""``postgres-cdc maintain``: retention, compaction and clean-up of everything that a pipeline keeps in its lake.

Run it once a day. It may be repeated after any crash, and run beside a sync: it changes no row that is kept, and each
of its commits yields to a commit of a sync.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import TYPE_CHECKING

from spark_jobs.apply.apply_messages import MESSAGES_LAYOUT
from spark_jobs.change_log.retention import keep_log_small
from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Pipeline
from spark_jobs.delta.counted_files import CountedFiles
from spark_jobs.delta.files import decoded_path
from spark_jobs.delta.history import History
from spark_jobs.delta.upkeep import CountedTable, Upkeep, keep_small
from spark_jobs.errors import CdcError
from spark_jobs.lake.cuts import keep_cuts_small
from spark_jobs.lake.latest_cut import show_in_latest_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table, messages_state
from spark_jobs.lake.table_state import records_of
from spark_jobs.lake.unrepresentable import keep_records_small
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.write_guard import WriteGuard, write_guard
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.chunks.read_plan import ReadPlan
from spark_jobs.snapshot.chunks.read_record import ReadRecord, plans
from spark_jobs.spark.errors import spark_errors
from spark_jobs.tables.at_source import all_followed_names, resolved
from spark_jobs.tables.ledger import Ledger
from spark_jobs.writers.table_upkeep import TableFiles, TableKept, keep_table_small
from spark_jobs.writers.with_spark.simpler_table import TableSimplified, simplify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableMaintained:
    """``error``: why the table was left unchanged. ``simplified``: None if that was not asked for."""

    name: QualifiedName
    files: TableFiles | None = None
    error: CdcError | None = None
    simplified: TableSimplified | None = None


@dataclass(frozen=True)
class MaintainReport:
    """``first_window`` is the oldest one left in the change log, and ``reaches_back_to`` its start. ``held_by`` names
    what needs windows that are older than their retention; empty if nothing does. A part that does not exist or failed
    is None."""

    first_window: int
    reaches_back_to: Lsn
    held_by: str
    change_log: Upkeep | None
    cuts: Upkeep | None
    messages: Upkeep | None
    tables: tuple[TableMaintained, ...]
    errors: tuple[CdcError, ...]
    seconds: float
    unrepresentable: Upkeep | None = None


def maintain(
    pipeline: Pipeline, spark: Callable[[], SparkSession], *, simpler: bool = False, progress: Progress = silent
) -> MaintainReport:
    """Maintain change log, cuts, messages and each table, in this order; a failure stops only its part. ``spark`` is
    called only if a table needs it, or to make tables ``simpler``.

    Raises LakeError if there is no change log, or if it cannot be read; CdcError if it cannot be determined what the
    tables still need. Nothing has been changed then.
    """
    pipeline = resolved(pipeline)
    began = time.monotonic()
    ledger = Ledger.required(pipeline.lake).opening(all_followed_names(pipeline))
    log, last = ledger.log, ledger.last
    needed, parts = _needed_windows(pipeline, ledger), _Parts(3 + len(ledger.found), progress)
    change_log = cuts = messages = unrepresentable = None
    done: dict[QualifiedName, TableKept | CdcError] = {}
    with write_guard(pipeline.source) as guard:
        with parts.part("change log"), guard.log():
            change_log = keep_log_small(log, last, pipeline.retention.change_log, needed.ordinal)
        with parts.part("cuts"):
            cuts = keep_cuts_small(pipeline.lake, ledger.cut, pipeline.retention.cuts) if ledger.cut else None
        with parts.part("messages"):
            messages = _keep_messages_small(pipeline, last.identity)
        with parts.part():
            unrepresentable = _keep_records_small(pipeline, ledger)
        for name in ledger.found:
            with parts.part(str(name)):
                done[name] = ledger.errors.get(name) or _maintain_table(pipeline, spark, name, guard, simpler=simpler)
        with parts.part(), guard.cuts():
            # syncs do not look at an idle table, and VACUUM will remove the files of the version that its cut names
            kept = {name: table.same_rows for name, table in done.items() if isinstance(table, TableKept)}
            show_in_latest_cut(pipeline.lake, last.identity, kept, kept)
    first = log.first_window() or last
    holder = needed.by if change_log is not None and change_log.overdue else ""
    return MaintainReport(
        first.ordinal,
        first.window.lo,
        holder,
        change_log,
        cuts,
        messages,
        tuple(starmap(_told, done.items())),
        (*parts.errors, *(table for table in done.values() if isinstance(table, CdcError))),
        time.monotonic() - began,
        unrepresentable,
    )


@dataclass
class _Parts:
    """The parts of the work. Each may fail alone."""

    total: int
    progress: Progress
    begun: int = 0
    errors: list[CdcError] = field(default_factory=list)

    @contextmanager
    def part(self, shown: str = "") -> Iterator[None]:
        """``shown``: the step of progress that it is, empty for none."""
        if shown:
            self.progress(Step("maintain", shown, self.begun, self.total, "tables"))
            self.begun += 1
        try:
            yield
        except CdcError as error:
            self.errors.append(error)


@dataclass(frozen=True)
class _Needed:
    """Windows from ``ordinal`` on are needed. ``by`` names the table that is furthest behind; empty if only the last
    window is needed."""

    ordinal: int
    by: str = ""


def _needed_windows(pipeline: Pipeline, ledger: Ledger) -> _Needed:
    """A table needs the marker of the window that it shows, and the windows after it. A table without a snapshot, or
    that needs a new one, needs none, unless a snapshot is read in chunks now: then those since it was begun. A table
    that cannot be read may need all."""
    needs = [_Needed(ledger.last.ordinal), *(_Needed(0, f"{name}, which cannot be read") for name in ledger.errors)]
    needs += [_Needed(state.ordinal, str(name)) for name, state in ledger.states.items() if not state.is_lost]
    needs += [
        _Needed(plan.first_window, f"{plan.name}, which is read in chunks") for plan in _goes_on(pipeline, ledger)
    ]
    if has_messages_table(pipeline):
        messages = ledger.state_of(MESSAGES_NAME)
        # a messages table that does not exist yet is built from everything in the change log
        needs.append(_Needed(messages.ordinal if messages else 0, "the messages table"))
    return min(needs, key=lambda need: need.ordinal)


def _goes_on(pipeline: Pipeline, ledger: Ledger) -> Iterator[ReadPlan]:
    """The snapshots in chunks that the next run reads on. The records of all others are removed."""
    followed = all_followed_names(pipeline)
    for plan in plans(pipeline.lake):
        if plan.name in followed and plan.goes_on_from(ledger.states.get(plan.name)):
            yield plan
        elif plan.name not in ledger.errors:
            ReadRecord(pipeline.lake, plan.name).remove()


def _told(name: QualifiedName, done: TableKept | CdcError) -> TableMaintained:
    if isinstance(done, CdcError):
        return TableMaintained(name, error=done)
    return TableMaintained(name, done.files, simplified=done.simplified)


def _keep_messages_small(pipeline: Pipeline, identity: SlotIdentity) -> Upkeep | None:
    """No message is removed: they are the user's data. None if there is no messages table."""
    if not has_messages_table(pipeline) or messages_state(pipeline.lake, identity) is None:
        return None
    files = CountedFiles(decoded_path(pipeline.lake.messages), "window", MESSAGES_LAYOUT.schema)
    history = History.for_cuts(pipeline.retention.cuts)
    return keep_small(CountedTable(files, MESSAGES_LAYOUT, by_day=False), history.properties, None, history)


def _keep_records_small(pipeline: Pipeline, ledger: Ledger) -> Upkeep | None:
    """None if no table has records, and none may get one."""
    states = ledger.states.values()
    if not any(state.unrepresentable for state in states) and not any(map(pipeline.may_replace_values, ledger.found)):
        return None
    for state in states:
        records_of(pipeline.lake, state, ledger.identity).add(state.unrepresentable.file)
    return keep_records_small(pipeline.lake, pipeline.retention.change_log)


def _maintain_table(
    pipeline: Pipeline, spark: Callable[[], SparkSession], name: QualifiedName, guard: WriteGuard, *, simpler: bool
) -> TableKept | CdcError:
    try:
        with guard.table(name), spark_errors(f"{name} cannot be maintained", name=name, path=pipeline.lake.table(name)):
            simplified = simplify(pipeline, name, spark()) if simpler else None
            return replace(keep_table_small(pipeline, name, spark), simplified=simplified)
    except CdcError as error:
        return error
