"""What there is to apply: which tables have something in the landed windows, and from where on.

The log's markers say which relations a window changed, and the latest cut says up to where each table is done. So a
table without changes costs nothing: its Delta table is not opened, nothing is scanned and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.lake.cuts import Cut, latest_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table, messages_state
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.followed_tables import all_followed_names
from spark_jobs.tables.standings import Standing, standings, state_to_apply_to


@dataclass(frozen=True)
class Plan:
    """``tables`` in the order asked for: each has a standing, or is ``stopped`` by an error. ``work`` is what some of
    them have to do.

    ``ahead``: the landed windows that some table, or the messages, are not done with; ``last``: the one at whose end
    all is done. ``messages_reached``: the window up to which the messages are done, -1 where all is to do, None where
    they are not asked for. ``followed``: all tables of the pipeline that can go on.
    """

    tables: tuple[QualifiedName, ...]
    followed: tuple[QualifiedName, ...]
    standings: tuple[Standing, ...]
    stopped: Mapping[QualifiedName, CdcError]
    work: tuple[TableRange, ...]
    ahead: tuple[WindowMarker, ...]
    last: WindowMarker
    messages_reached: int | None
    cut: Cut | None

    @property
    def shows_all_tables(self) -> bool:
        """Only then it makes a cut."""
        return set(self.tables) >= set(self.followed)


def plan_apply(
    pipeline: Pipeline,
    names: Sequence[QualifiedName] | None = None,
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    messages: bool = False,
    run_id: str = "",
) -> Plan:
    """For ``names`` (all followed tables) without ``excluding``, up to the last window that ends at or before ``upto``.

    Raises LakeError when there is no change log.
    """
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise LakeError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
    followed = tuple(name for name in all_followed_names(pipeline) if name not in excluding)
    tables = followed if names is None else tuple(name for name in names if name not in excluding)
    cut = latest_cut(pipeline.lake)
    known = standings(pipeline.lake, tables, checkpoint.identity, cut)
    standing = tuple(each for each in known.values() if isinstance(each, Standing))
    stopped: dict[QualifiedName, CdcError] = {
        name: error for name, error in known.items() if isinstance(error, CdcError)
    }
    reached = _messages_reached(pipeline, checkpoint, cut) if messages and has_messages_table(pipeline) else None
    lowest = min([checkpoint.ordinal if reached is None else reached, *(each.ordinal for each in standing)])
    ahead = _landed(log, lowest, upto)
    states: list[TableState] = []
    for each in standing:
        if any(each.is_touched_by(marker) for marker in ahead):
            try:
                states.append(state_to_apply_to(pipeline.lake, each, checkpoint.identity, cut))
            except CdcError as error:
                stopped[each.name] = error
    # a table that was snapshotted again since the cut stands where its snapshot does
    before = min([lowest, *(state.ordinal for state in states)])
    markers = ahead if before == lowest else _landed(log, before, upto)
    work = tuple(TableRange(pipeline, state, markers, run_id) for state in states)
    last = ahead[-1] if ahead else checkpoint
    return Plan(tables, followed, standing, stopped, work, ahead, last, reached, cut)


def _landed(log: ChangeLog, after: int, upto: Lsn | None) -> tuple[WindowMarker, ...]:
    return tuple(marker for marker in log.markers(after) if upto is None or marker.window.hi <= upto)


def _messages_reached(pipeline: Pipeline, checkpoint: WindowMarker, cut: Cut | None) -> int:
    """What the cut says, else the last commit of the messages table. -1: all to do."""
    try:
        state = messages_state(pipeline, checkpoint.identity)
    except CdcError:
        return checkpoint.ordinal  # raised again, and reported, when it is applied to
    if state is None:
        return -1
    known = cut.table(MESSAGES_NAME) if cut is not None else None
    # windows without messages left no commit; a table that was re-created is not the one of the cut
    return cut.ordinal if cut is not None and known is not None and known.version == state.version else state.ordinal
