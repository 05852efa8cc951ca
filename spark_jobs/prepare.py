"""What a pipeline needs before windows are read: publication, slot and change log, created if missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_jobs.capture.slot_preparation import prepare_slot
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError, LakeError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.lake.table_state import TableState, table_states
from spark_jobs.postgres.connection import connected
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
from spark_jobs.tables.configured_otherwise import configured_otherwise
from spark_jobs.tables.followed_tables import followed_names, nothing_followed
from spark_jobs.tables.masked_columns import mask_words
from spark_jobs.tables.matching_tables import refreshed
from spark_jobs.tables.progress import NO_PROGRESS, Progress, progress_of
from spark_jobs.tables.stopped_tables import TableStopped, none_can_go_on, require_readable, stopped_tables


@dataclass(frozen=True)
class Prepared:
    """``pipeline`` with the tables that its patterns match now. ``tables`` are followed, in the order of the
    configuration; ``checkpoint`` is the change log's last marker,
    ``progress`` how far the tables, and the messages table, are.

    ``missing`` tables need a new generation: they have none in this chapter of the log, or one in another mode, with
    other types or with other masks, or that lacks columns which are no longer ignored. ``reasons`` has a sentence for
    those that must be read from the source. ``stopped`` tables
    cannot be followed at present, and are not among ``tables``.
    """

    pipeline: Pipeline
    checkpoint: WindowMarker
    tables: tuple[QualifiedName, ...]
    missing: tuple[QualifiedName, ...]
    progress: Progress
    stopped: tuple[TableStopped, ...] = ()
    reasons: Mapping[QualifiedName, str] = field(default_factory=dict)


@again_when_lost
def prepare(pipeline: Pipeline) -> Prepared:
    """Create publication, slot and change log if they are missing; nothing is changed when an error is raised.

    A table that cannot be followed is in ``stopped``, with its error, and does not hold back the others. But as long as
    there is no change log, nothing is created if none can be followed, or if the configuration is wrong about one.
    Raises what ``prepare_slot`` raises, and ConfigurationError for a mask that does not fit its table.
    """
    with connected(pipeline.source.dsn) as connection:
        pipeline = refreshed(connection, pipeline)
        masks = mask_words(connection, pipeline)
        names = followed_names(connection, pipeline)
        checkpoint = landed_end(pipeline.lake)
        asked = (*names, MESSAGES_NAME) if has_messages_table(pipeline) else names
        progress = NO_PROGRESS if checkpoint is None else progress_of(pipeline.lake, asked, checkpoint.identity)
        states: dict[QualifiedName, TableState | LakeError] = {**progress.states, **progress.errors}
        stopped = stopped_tables(connection, pipeline, names, states)
        if checkpoint is None:
            if not names:
                raise nothing_followed(pipeline)
            for table in stopped:
                if isinstance(table.error, ConfigurationError) and pipeline.names_singly(table.name):
                    raise table.error
            if len(stopped) == len(names):
                raise none_can_go_on(stopped)
        elif ("binary", "true") not in checkpoint.identity.options:
            # no window may be read in binary before every table can be
            require_readable(connection, pipeline.source, names)
        halted = {table.name for table in stopped}
        tables = tuple(name for name in names if name not in halted)
        checkpoint = prepare_slot(pipeline, tables)
    began = BegunGenerations(pipeline, checkpoint, masks, states)
    # a cut may be older than a table's newest generation, so the table itself is asked before a new one is begun
    needing = tuple(name for name in tables if began.needs_another(name))
    in_doubt = [name for name in needing if name in progress.states]
    if in_doubt:
        opened = table_states(pipeline.lake, in_doubt, checkpoint.identity)
        began, progress = replace(began, states={**states, **opened}), progress.with_opened(opened)
        needing = tuple(name for name in needing if began.needs_another(name))
    reasons = {name: why for name in needing if (why := began.why_from_source(name))}
    return Prepared(pipeline, checkpoint, tables, needing, progress, stopped, reasons)


@dataclass(frozen=True)
class BegunGenerations:
    """The generations that the tables have, and what the configuration asks for. ``masks``: their words."""

    pipeline: Pipeline
    checkpoint: WindowMarker
    masks: Mapping[QualifiedName, str]
    states: Mapping[QualifiedName, TableState | LakeError]

    def needs_another(self, name: QualifiedName) -> bool:
        """Whether the table has no generation in this chapter of the log, or one of another form than configured."""
        state = self.states.get(name)
        if isinstance(state, LakeError):  # an unreadable table is replaced only on request
            return False
        if state is None or is_of_earlier_chapter(state, self.checkpoint.identity.chapter):
            return True
        return not state.is_lost and (state.mode != self.pipeline.mode_of(name) or bool(self.why_from_source(name)))

    def why_from_source(self, name: QualifiedName) -> str:
        """How its types, masks or ignored columns changed: then it must be read from the source, even if its mode
        changed too. Empty if they did not, or if it has no readable snapshot."""
        state = self.states.get(name)
        if not isinstance(state, TableState) or state.is_lost:
            return ""
        return configured_otherwise(self.pipeline, state, self.masks.get(name, ""))
