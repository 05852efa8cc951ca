"""Bring tables to the end of the change log: plan the work, apply it, and write the cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from spark_jobs.apply.apply_messages import apply_messages
from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.plan import Plan, plan_apply
from spark_jobs.apply.register import register_where_possible
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.lake.cuts import Cut, write_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.tables.ledger import Ledger, cut_at


@dataclass(frozen=True)
class CatchUpReport:
    """``tables`` are in the order asked for. ``cut`` is the latest cut, None before the first one.

    ``messages`` is the result for the messages table, None when it was not asked for.
    """

    tables: tuple[TableApplied, ...]
    cut: Cut | None
    messages: TableApplied | None = None

    @property
    def errors(self) -> tuple[CdcError, ...]:
        errors = (*(table.error for table in self.tables), self.messages.error if self.messages else None)
        return tuple(error for error in errors if error is not None)


def apply(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    ledger: Ledger | None = None,
    uncaptured: int | None = None,
) -> CatchUpReport:
    """Apply landed windows to ``names``, each from its own watermark to the log's end. ``MESSAGES_NAME`` may be one of
    them; by default they are all followed tables, and the messages table if the pipeline keeps one.

    Tables in ``excluding`` cannot go on: they are not touched and appear in no cut. ``upto`` stops at the last window
    that ends at or before it. A table that fails, or that another process is writing, is reported with its error; the
    others are brought up to date. Where a day or an hour ends, a cut of all followed tables is written before any of
    them goes on. ``ledger``: see ``plan_apply``. ``uncaptured``: the bytes of WAL that the caller captures and applies
    after that, so that Spark can be told how much is ahead; None if nobody can tell. Raises LakeError when there is no
    change log.
    """
    done: dict[QualifiedName, TableApplied] = {}
    asked_for: tuple[QualifiedName, ...] = ()
    plan: Plan | None = None
    with run.guarded() as run:
        while plan is None or plan.goes_on:
            failed = {name for name, applied in done.items() if applied.error is not None}
            ended = -1 if plan is None else plan.last.ordinal
            planned = partial(plan_apply, run, excluding={*excluding, *failed}, upto=upto, ended=ended)
            plan = planned(names, ledger=None if done else ledger)
            asked_for = asked_for or plan.asked_for
            if plan.goes_on and not plan.shows_all_tables:  # the cut at the end needs the others too
                plan = planned()
            if uncaptured is not None:
                run.expect(partial(plan.is_little, run.pipeline.writes, uncaptured))
            now, cut = _apply(run, plan)
            done |= {name: applied.after(done.get(name)) for name, applied in now.items()}
    tables = tuple(done[name] for name in asked_for if name != MESSAGES_NAME)
    return CatchUpReport(tables, cut, done.get(MESSAGES_NAME) if MESSAGES_NAME in asked_for else None)


def _apply(run: Run, plan: Plan) -> tuple[dict[QualifiedName, TableApplied], Cut | None]:
    """The outcome of each of the plan's tables, and the latest cut."""
    # first: they need no Spark, so an outbox is served while Spark is down
    done = {MESSAGES_NAME: apply_messages(run, plan)} if plan.messages else {}
    done |= {outcome.name: outcome for outcome in apply_tables(plan.work)}
    cut = plan.ledger.cut
    if plan.ahead and plan.shows_all_tables:
        with run.guard.cuts():
            cut = _write_cut(run.pipeline, plan, done)
    register_where_possible(run, [name for name in plan.tables if name in plan.ledger.states])
    for name in plan.tables:
        error = plan.ledger.errors.get(name)
        done.setdefault(name, TableApplied.without_commit(name, plan.last, error=error))
    return done, cut


def _write_cut(pipeline: Pipeline, plan: Plan, done: Mapping[QualifiedName, TableApplied]) -> Cut | None:
    """Write a cut of the tables that show the end of the plan's last window."""
    stopped = {name for name, applied in done.items() if applied.error is not None}
    states = {name: state for name, state in plan.ledger.states.items() if name not in stopped}
    states |= {name: applied.state for name, applied in done.items() if applied.state and name not in stopped}
    last = plan.last
    shown = tuple(table for state in states.values() if (table := cut_at(last, state)))
    return write_cut(pipeline.lake, last.ordinal, last.window.hi, shown, based_on=plan.ledger.cut, ends=last.ends)
