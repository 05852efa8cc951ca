"""What a pipeline needs before windows are read: publication, slot and change log, created if missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_jobs.capture.slot_preparation import prepare_slot
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.publication import TablesLockedError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.configured_otherwise import BegunGenerations
from spark_jobs.tables.followed_tables import nothing_followed
from spark_jobs.tables.ledger import Ledger
from spark_jobs.tables.masked_columns import mask_words
from spark_jobs.tables.stopped_tables import TableStopped, all_stopped, require_readable, stopped_tables


@dataclass(frozen=True)
class Prepared:
    """``pipeline`` with the tables that its patterns match now. ``tables`` are followed, in the order of the
    configuration; ``ledger`` says how far they, and the messages table, are. ``flushed``: the end of the server's WAL.

    ``missing`` tables need a new generation: they have none in this chapter of the log, or one in another mode, with
    other types or with other masks, or that lacks columns which are no longer ignored. Each has a sentence that says
    why it must be read from the source, empty if nothing says so. ``stopped`` tables cannot be followed at present, and
    are not among ``tables``.
    """

    pipeline: Pipeline
    ledger: Ledger
    flushed: Lsn
    tables: tuple[QualifiedName, ...]
    missing: Mapping[QualifiedName, str]
    stopped: tuple[TableStopped, ...] = ()


@again_when_lost
def prepare(pipeline: Pipeline) -> Prepared:
    """Create publication, slot and change log if they are missing; nothing is changed when an error is raised.

    A table that cannot be followed is in ``stopped``, with its error, and does not hold back the others. But as long as
    there is no change log, nothing is created if none can be followed, or if the configuration is wrong about one.
    Raises what ``prepare_slot`` raises, and ConfigurationError for a mask that does not fit its table.
    """
    with connected(pipeline.source.dsn) as connection:
        at_source = AtSource(connection, pipeline).now()
        pipeline, masks, names = at_source.pipeline, mask_words(at_source), at_source.followed_names()
        all_names = (*names, MESSAGES_NAME) if has_messages_table(pipeline) else names
        ledger = Ledger.of(pipeline.lake)
        ledger = ledger and ledger.reading(all_names)
        stopped = stopped_tables(at_source, names, ledger.found if ledger else {})
        if ledger is None:
            _require_followable(pipeline, names, stopped)
        elif ("binary", "true") not in ledger.identity.options:
            # no window may be read in binary before every table can be
            require_readable(at_source, names)
        halted = {table.name for table in stopped}
        last, tables, locked = _slot_prepared(at_source, tuple(name for name in names if name not in halted))
        flushed = flushed_lsn(connection)
    ledger = replace(ledger, last=last) if ledger else Ledger(pipeline.lake, last)
    began = BegunGenerations(pipeline, ledger, masks)
    # a cut may be older than a table's newest generation, so the table itself is asked before a new one is begun
    needing = tuple(name for name in tables if began.needs_another(name))
    in_doubt = [name for name in needing if name in ledger.states]
    if in_doubt:
        ledger = ledger.opening(in_doubt)
        began = replace(began, ledger=ledger)
        needing = tuple(name for name in needing if began.needs_another(name))
    missing = {name: began.why_from_source(name) for name in needing}
    return Prepared(pipeline, ledger, flushed, tables, missing, (*stopped, *locked))


def _require_followable(pipeline: Pipeline, names: Sequence[QualifiedName], stopped: Sequence[TableStopped]) -> None:
    """Raises the error if none of the tables can be followed, or if the configuration is wrong about one."""
    if not names:
        raise nothing_followed(pipeline)
    for table in stopped:
        singly = pipeline.names_singly(pipeline.relation(table.name))
        if isinstance(table.error, ConfigurationError) and singly:
            raise table.error
    if len(stopped) == len(names):
        raise all_stopped(stopped)


def _slot_prepared(
    at_source: AtSource, tables: tuple[QualifiedName, ...]
) -> tuple[WindowMarker, tuple[QualifiedName, ...], tuple[TableStopped, ...]]:
    """``prepare_slot`` for those of the tables that another session has not locked, at least one; third are the
    others."""
    try:
        return prepare_slot(at_source, tables), tables, ()
    except TablesLockedError as error:
        locked = at_source.pipeline.by_name(tables, error.errors)
        others = tuple(name for name in tables if name not in locked)
        if not others:
            raise
    return prepare_slot(at_source, others), others, tuple(TableStopped(name, why) for name, why in locked.items())
