"""A slot belongs to one change log: if two read it in turn, each would miss what the other one read. The comment of our
publication names the log. A user's own publication has no such comment, and ``test_decoding`` has no publication; then
nothing tells which log it is.
"""

from __future__ import annotations

from spark_jobs.errors import SlotError
from spark_jobs.postgres.publication_comment import PublicationComment, may_write_comment, write_comment
from spark_jobs.tables.at_source import AtSource


def require_own_slot(at_source: AtSource) -> None:
    """For a slot that exists while this lake has landed nothing. Raises SlotError if it is read for another lake."""
    if not is_read_for_another(at_source, at_source.log.id()):
        return
    source, lake = at_source.source, at_source.pipeline.lake
    raise SlotError(
        f"slot {source.slot} is read for another lake: lake.path {lake.path} has no change log, and the"
        f" comment of publication {source.publications[0]} names another one",
        hint="give this pipeline a name of its own, or a source.slot and a source.publication; where the other lake is"
        " given up, set source.adopt_slot: true",
    )


def is_read_for_another(at_source: AtSource, log: str | None) -> bool:
    """Whether the slot is known to be read for another change log than ``log``, and is not to be adopted."""
    source = at_source.source
    publication = None if source.adopt_slot else at_source.publication
    comment = None if publication is None else publication.comment
    return comment is not None and comment.log_of(source.slot) not in (None, log)


def note_owner(at_source: AtSource, comment: PublicationComment) -> None:
    """Write into our publication's ``comment`` that the slot is read for this lake."""
    control, log_id, name = at_source.connection, at_source.log.id(), at_source.source.publications[0]
    if log_id is not None and may_write_comment(control, name):
        write_comment(control, name, comment.with_log(at_source.source.slot, log_id))
