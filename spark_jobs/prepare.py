"""What a pipeline needs before windows are read: publication, slot and change log, created if missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.capture.slot_preparation import prepare_slot
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError, PreconditionError
from spark_jobs.lake.table_state import TableState, table_states
from spark_jobs.postgres.connection import connected
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.table_mask import why_masked_otherwise
from spark_jobs.table_mode import Mode
from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
from spark_jobs.tables.followed_tables import followed_names
from spark_jobs.tables.masked_columns import mask_words
from spark_jobs.tables.stopped_tables import TableStopped, require_readable, stopped_tables


@dataclass(frozen=True)
class Prepared:
    """``tables`` are followed, in the order of the configuration; ``checkpoint`` is the change log's last marker.

    ``missing`` tables need a new generation: they have none in this chapter of the log, or one in another mode, with
    other types or with other masks. ``reasons`` has a sentence for those with other types or masks. ``stopped`` tables
    cannot be followed at present, and are not among ``tables``.
    """

    checkpoint: WindowMarker
    tables: tuple[QualifiedName, ...]
    missing: tuple[QualifiedName, ...]
    stopped: tuple[TableStopped, ...] = ()
    reasons: Mapping[QualifiedName, str] = field(default_factory=dict)


@again_when_lost
def prepare(pipeline: Pipeline) -> Prepared:
    """Create publication, slot and change log if they are missing; nothing is changed when an error is raised.

    A table that cannot be followed is in ``stopped``, with its error, and does not hold back the others; but without a
    change log, its error is raised. Raises what ``prepare_slot`` raises, and ConfigurationError for a mask that
    does not fit its table.
    """
    with connected(pipeline.source.dsn) as connection:
        masks = mask_words(connection, pipeline)
        names = followed_names(connection, pipeline)
        checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
        states = {} if checkpoint is None else table_states(pipeline.lake, names, checkpoint.identity)
        stopped = stopped_tables(connection, pipeline, names, states)
        if checkpoint is None:
            for table in stopped:
                raise table.error
            if not names:
                nothing = f"publication {', '.join(pipeline.source.publications)} has no table"
                raise PreconditionError(nothing, hint="ALTER PUBLICATION ... ADD TABLE")
        elif ("binary", "true") not in checkpoint.identity.options:
            # no window may be read in binary before every table can be
            require_readable(connection, pipeline.source, names)
        halted = {table.name for table in stopped}
        tables = tuple(name for name in names if name not in halted)
        checkpoint = prepare_slot(pipeline, tables)
    missing = tuple(name for name in tables if _has_no_snapshot(states.get(name), checkpoint, pipeline.mode_of(name)))
    remasked = {name: why for name in tables if (why := _mask_change(states.get(name), masks.get(name, "")))}
    # a table with other types or masks must be read from the source, even if its mode changed too
    reasons = {**_type_changes(pipeline, {name: states.get(name) for name in tables}), **remasked}
    missing = tuple(name for name in tables if name in missing or name in reasons)
    return Prepared(checkpoint, tables, missing, stopped, reasons)


def _type_changes(
    pipeline: Pipeline, states: Mapping[QualifiedName, TableState | LakeError | None]
) -> dict[QualifiedName, str]:
    """The tables whose chosen types differ from the configured ones, and what changed."""
    changed = {
        name: pipeline.table(name).options.types.changed_since(state.types)
        for name, state in states.items()
        if isinstance(state, TableState) and not state.is_lost
    }
    return {name: what for name, what in changed.items() if what}


def _mask_change(state: TableState | LakeError | None, mask: str) -> str:
    """How the table's masks changed since its snapshot; empty if they did not, or if it has no readable snapshot."""
    if not isinstance(state, TableState) or state.is_lost:
        return ""
    return why_masked_otherwise(state.mask, mask)


def _has_no_snapshot(state: TableState | LakeError | None, checkpoint: WindowMarker, mode: Mode) -> bool:
    if isinstance(state, LakeError):  # an unreadable table is replaced only on request
        return False
    if state is None or is_of_earlier_chapter(state, checkpoint.identity.chapter):
        return True
    return not state.is_lost and state.mode != mode
