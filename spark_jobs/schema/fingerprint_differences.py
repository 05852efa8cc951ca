"""What changed in a table between two looks at the catalogue: why rows may differ, and what is followed in place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import THROUGH, Fingerprint, FingerprintColumn, FingerprintPart, is_later
from spark_jobs.schema.lake_types import NUMERIC_OID, LakeType, is_widened, lake_type
from spark_jobs.schema.partition_bounds import Region, outermost

# names as quote_ident writes them
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")+"|[^", ]+')
_TEXT_OIDS = (25, 1043)  # text, varchar: changed into each other without a rewrite, and printed the same


@dataclass(frozen=True)
class MovedFile:
    """A part whose rows are in another file, for a reason that the catalogue does not show. VACUUM FULL, CLUSTER and
    REPACK keep each row's ``xmin``, a TRUNCATE by transaction ``changed`` removes the rows, and other DDL rewrites
    them.
    """

    name: QualifiedName
    changed: int
    reason: str


@dataclass(frozen=True)
class ColumnChange:
    """DDL on one column that left all rows as they are: ``what`` happened to the column with number ``attnum``."""

    attnum: int
    what: str
    added: bool = False


@dataclass(frozen=True)
class Differences:
    """``reasons``: why rows may differ without an event. ``moved_files`` are further reasons, unless explained later.

    ``columns``: changes that the lake can follow in place, by attribute number. ``regions``: if all ``reasons`` are
    partitions that were attached or removed, the rows that may differ; if empty, any row may. ``was_partition``: it may
    have been one for a time.
    """

    reasons: tuple[str, ...]
    moved_files: tuple[MovedFile, ...] = ()
    columns: tuple[ColumnChange, ...] = ()
    regions: tuple[Region, ...] = ()
    was_partition: bool = False

    @property
    def column_words(self) -> tuple[str, ...]:
        return tuple(change.what for change in self.columns)


def differences(before: Fingerprint, after: Fingerprint) -> Differences:
    """What changed between two looks at a table with the same OID or the same name."""
    if before.relid != after.relid:
        return Differences((f"another table has the name {after.name} now",))
    widened = _widened(before, after) if _has_files_of(before, after) else ()
    columns = [*_columns(before, after), *widened]
    followed = {change.attnum for change in widened}
    reasons = [*_membership(before, after), *_type_changes(before, after, followed), *_types(before, after)]
    reasons += filter(None, [why_masked_otherwise(before.mask_word, after.mask_word)])
    reasons += [*_names_taken_over(before, after), *_names_of_unseen(before, after), *_taken_by_unseen(before, after)]
    reasons += _no_longer_generated(before, after)
    was_partition = _was_partition(before, after)
    reasons += ["it was a partition of another table for a time"] if was_partition else []
    moved: list[MovedFile] = []
    known = {part.relid: part for part in before.parts}
    if not _keeps_missing_values(known, after):
        reasons += [change.what for change in columns if change.added]
        columns = [change for change in columns if not change.added]
    regions: list[Region | None] = []
    for part in after.parts:
        old = known.pop(part.relid, None)
        if old is None or old.attached != part.attached:
            if why := _why_not_sent(part):
                reasons.append(why)
                regions.append(_attached_region(before, after, old, part))
            continue
        others = _part_reasons(old, part, after, _renamed(before, after))
        reasons, regions = [*reasons, *others], [*regions, *(None for _ in others)]
        moved += _moved_file(old, part, after)
    reasons += [f"partition {part.name} was detached or dropped" for part in known.values()]
    regions += [before.region(part) for part in known.values()]
    # other reasons have no region; and if columns changed, the regions' rows cannot be read alone
    known_regions = [region for region in regions if region is not None]
    are_all = len(reasons) == len(known_regions) and not columns
    within = outermost(known_regions) if are_all else ()
    return Differences(tuple(dict.fromkeys(reasons)), tuple(moved), tuple(columns), within, was_partition)


def kind_of_change(what: str) -> Literal["add", "drop", "retype", ""]:
    """Which change of a column a reason, or a ``ColumnChange``, tells of; empty for any other. Change logs hold these
    as text. A name that ends like a phrase can only make another change look like one of these."""
    if not what.startswith(("column ", "the type of column ")):
        return ""
    if what.endswith(" was added"):
        return "add"
    if what.endswith(" was dropped"):
        return "drop"
    return "retype" if what.endswith((" was widened", " was changed")) else ""


def _has_files_of(before: Fingerprint, after: Fingerprint) -> bool:
    """Whether no rows of the parts that both looks show can have been rewritten."""
    files = {part.relid: part.relfilenode for part in before.parts}
    return all(files.get(part.relid, part.relfilenode) == part.relfilenode for part in after.parts)


def _keeps_missing_values(before: Mapping[int, FingerprintPart], after: Fingerprint) -> bool:
    """Whether the catalogue still has the value that an added column has in older rows. A rewrite, also by VACUUM FULL,
    stores that value in the rows instead. Not so for partitions, each of which may have another value."""
    part = after.parts[0]
    old = before.get(part.relid)
    return len(after.parts) == 1 and old is not None and old.relfilenode == part.relfilenode


def _why_not_sent(new: FingerprintPart) -> str:
    """Why rows of a new partition may have come or gone without an event; empty if all changes of them were sent."""
    if not new.made_as_partition:
        return f"partition {new.name} was attached"
    # a table begins in the file that has its number; a partitioned one has none
    return _truncated_alone(new) if new.relfilenode not in (0, new.relid) else ""


def _truncated_alone(part: FingerprintPart) -> str:
    """Its own TRUNCATE is not sent if changes are published under the root's name."""
    return f"partition {part.name} was truncated on its own, or rewritten"


def _attached_region(
    before: Fingerprint, after: Fingerprint, old: FingerprintPart | None, new: FingerprintPart
) -> Region | None:
    """The attached partition's region. None if it was attached before with other bounds: it may have had yet others in
    between."""
    region = after.region(new)
    return region if old is None or before.region(old) == region else None


def _membership(before: Fingerprint, after: Fingerprint) -> list[str]:
    # older logs do not say through which tables a partition is published
    if before.entries in (after.entries, after.entries.partition(THROUGH)[0]):
        return []
    return ["it was not published for a time, or its publication, row filter or column list was altered"]


def _columns(before: Fingerprint, after: Fingerprint) -> list[ColumnChange]:
    changes = []
    known = {column.attnum: column for column in before.columns}
    for column in after.columns:
        old = known.pop(column.attnum, None)
        if old is None:
            changes.append(ColumnChange(column.attnum, f"column {column.attname} was added", added=True))
        elif old.attname != column.attname:
            changes.append(ColumnChange(column.attnum, f"column {old.attname} was renamed to {column.attname}"))
    dropped = (ColumnChange(column.attnum, f"column {column.attname} was dropped") for column in known.values())
    return [*changes, *dropped]


def _names_taken_over(before: Fingerprint, after: Fingerprint) -> list[str]:
    """New columns that may have had the name of a dropped column for a time. A message of that time has the same names
    and types as earlier ones, so nothing shows that its values are another column's.

    The row of a column in ``pg_attribute`` has the transaction that altered it last: a rename, or the addition if there
    was none. Before the drop, no other column could have that name. The order within one transaction is not known: rows
    that it writes between such statements are taken for those of the old column.
    """
    now, then = {column.attnum for column in after.columns}, {column.attnum for column in before.columns}
    new = [column for column in after.columns if column.attnum not in then]
    dropped = [column for column in before.columns if column.attnum not in now]
    altered = _altered(after)
    return [
        f"column {late.attname} may have had the name of column {old.attname}, which was dropped before"
        for late in new
        for old in dropped
        # columns are sent in the order of their numbers: one between the two shows which of them it is
        if late.attname != old.attname and not any(old.attnum < number < late.attnum for number in now & then)
        if _hold_alike(old, late) and _may_be_later(altered.get(late.attnum), altered.get(old.attnum))
    ]


def _names_of_unseen(before: Fingerprint, after: Fingerprint) -> list[str]:
    """New columns that may have the name of one that no look has shown: its rows are sent as theirs are. It was added
    and dropped before them, and only its number is left. (A message that has one of the later new columns, and lacks
    the first, fits no description of the table.)"""
    numbers = {column.attnum for column in after.columns}
    unseen = _unseen(before, after)
    first = {min((number for number in numbers if number > gone), default=0) for gone in unseen}
    return [
        f"column {late.attname} may have the name of one that was added and dropped before it"
        for late in after.columns
        if late.attnum in first
    ]


def _taken_by_unseen(before: Fingerprint, after: Fingerprint) -> list[str]:
    """The same of new columns that are gone, too, and nobody knows their types any more. A table that keeps the dropped
    column would take their values for its own. Within one transaction this is rare enough to count."""
    then, now = {column.attnum for column in before.columns}, {column.attnum for column in after.columns}
    altered, unseen = _altered(after), _unseen(before, after)
    return [
        f"another column may have had the name of column {old.attname}, which was dropped before"
        for old in before.columns
        if old.attnum not in now and not any(number > old.attnum for number in now & then)
        if any(not is_later(altered.get(old.attnum, 0), altered[gone]) for gone in unseen)
    ]


def _unseen(before: Fingerprint, after: Fingerprint) -> set[int]:
    """The numbers of columns that were added and dropped between the two looks."""
    then = _altered(before)
    return _altered(after).keys() - then.keys() - {column.attnum for column in after.columns} if then else set()


def _no_longer_generated(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Columns that keep their values, and are sent from now on, after DROP EXPRESSION."""
    generated = {column.attnum for column in before.columns if column.attgenerated}
    return [
        f"column {column.attname} is no longer generated"
        for column in after.columns
        if column.attnum in generated and not column.attgenerated
    ]


def _was_partition(before: Fingerprint, after: Fingerprint) -> bool:
    """Whether a table that is no partition, and was none, may have been one for a time: DETACH writes its row in
    ``pg_class`` and those of all its columns, as ATTACH does. Its changes were sent under the name of the other table.
    (A table with one column has such rows after ALTER COLUMN and GRANT, too.)"""
    then, now = _altered(before), _altered(after)
    own = [next(part for part in each.parts if part.relid == each.relid) for each in (before, after)]
    is_one = any(part.bound is not None for part in own)
    # to drop a column writes its row, too
    left = [column.attnum for column in after.columns if column.attnum in then]
    is_written = own[0].changed != own[1].changed and all(now.get(number) != then[number] for number in left)
    return bool(left) and is_written and not is_one


def _altered(of: Fingerprint) -> dict[int, int]:
    """For each column, dropped ones included, the transaction that altered it last."""
    rows = next((part.attributes for part in of.parts if part.relid == of.relid), None) or ""
    pairs = (row.split(":") for row in rows.split() if row[0].isdigit())
    return {int(attnum): int(xmin) for attnum, xmin in pairs}


def _may_be_later(xid: int | None, than: int | None) -> bool:
    return xid is None or than is None or is_later(xid, than)


def _hold_alike(old: FingerprintColumn, new: FingerprintColumn) -> bool:
    """Whether a value of one column could be mistaken for a value of the other."""
    types = _lake_type(old), _lake_type(new)
    return old.atttypid == new.atttypid or types[0] == types[1] or is_widened(*types) or is_widened(*types[::-1])


def _widened(before: Fingerprint, after: Fingerprint) -> tuple[ColumnChange, ...]:
    """Numeric columns that got more digits before the point: PostgreSQL rewrites no rows, and the lake needs none from
    the source. (With more than 38 digits the lake's type is another one.)"""
    known = {column.attnum: column for column in before.columns}
    return tuple(
        ColumnChange(column.attnum, f"column {column.attname} was widened")
        for column in after.columns
        if column.attnum in known and is_widened(_lake_type(known[column.attnum]), _lake_type(column))
    )


def _lake_type(column: FingerprintColumn) -> LakeType:
    return lake_type(column.atttypid, column.atttypmod)


def _type_changes(before: Fingerprint, after: Fingerprint, followed: Collection[int]) -> list[str]:
    """Changes of columns' types, without those that are ``followed`` in place."""
    known = {column.attnum: column for column in before.columns if column.attnum not in followed}
    return [
        f"the type of column {column.attname} was changed"
        for column in after.columns
        if column.attnum in known and _prints_otherwise(known[column.attnum], column)
    ]


def _renamed(before: Fingerprint, after: Fingerprint) -> dict[str, str]:
    """Old name → new name, for the columns that still exist."""
    now = {column.attnum: column.attname for column in after.columns}
    return {column.attname: now[column.attnum] for column in before.columns if column.attnum in now}


def _prints_otherwise(old: FingerprintColumn, new: FingerprintColumn) -> bool:
    """Whether rows that were not rewritten now have another value in the lake. Rewrites are detected elsewhere."""
    if old.atttypid != new.atttypid:
        return not (old.atttypid in _TEXT_OIDS and new.atttypid in _TEXT_OIDS)
    return new.atttypid == NUMERIC_OID and old.atttypmod != new.atttypmod


def _types(before: Fingerprint, after: Fingerprint) -> list[str]:
    reasons = []
    known = {type_.typid: type_ for type_ in before.types}
    for now in after.types:
        old = known.get(now.typid)
        if old is None:
            continue
        labels = {label[0]: label for label in now.labels}
        if any(labels.get(label[0], label)[: len(label)] != label for label in old.labels):
            reasons.append(f"a label of enum {now.typname} was renamed")
        if old.attributes != now.attributes:
            reasons.append(f"attributes of type {now.typname} were added or dropped")
    return reasons


def _part_reasons(old: FingerprintPart, new: FingerprintPart, of: Fingerprint, renamed: Mapping[str, str]) -> list[str]:
    what = "it" if new.parent == 0 else f"partition {new.name}"
    reasons = []
    if old.relpersistence != new.relpersistence:
        reasons.append(f"{what} was unlogged for a time")
    if _is_rewritten(old, new, of):
        reasons.append(f"{what} was rewritten by DDL")
    if old.placed != new.placed:
        reasons.append(f"{what} had another name or schema for a time")
    if [renamed.get(name, name) for name in _names(old.identity)] != _names(new.identity):
        reasons.append(f"the replica identity of {new.name} was changed")
    if old.primary_key and new.primary_key and old.primary_key != new.primary_key:
        # in between there may have been several rows with one key, and deleting one looks like deleting the only one
        reasons.append(f"the primary key of {new.name} was dropped for a time")
    if old.declared_key != new.declared_key:
        reasons.append("its key was declared or given up, or the unique index behind it is another")
    if _index_changed(old, new):
        reasons.append(f"the replica identity of {new.name} was another for a time")
    return reasons


def _names(identity: str) -> list[str]:
    """The columns of an identity. In a partition's, the first element is its ``relreplident``."""
    names = _QUOTED_NAME.findall(identity)
    return [name[1:-1].replace('""', '"') if name.startswith('"') else name for name in names]


def _index_changed(old: FingerprintPart, new: FingerprintPart) -> bool:
    """Whether an index has another ``xmin``, for another reason than CLUSTER."""
    known = {index.split(":")[0]: index.split(":")[1:] for index in old.indexes}
    for index in new.indexes:
        oid, xmin, clustered = index.split(":")
        if oid in known and known[oid][0] != xmin and known[oid][1] == clustered:
            return True
    return False


def _is_rewritten(old: FingerprintPart, new: FingerprintPart, of: Fingerprint) -> bool:
    """DDL that rewrites rows creates a new TOAST table along with the new file. VACUUM FULL, CLUSTER and TRUNCATE keep
    the TOAST table's OID. REPACK (CONCURRENTLY) does not, but the rows stay as they were."""
    moved = old.relfilenode != new.relfilenode and old.reltoastrelid != new.reltoastrelid
    return moved and (bool(new.parent) or _may_hold_other_rows(old, new, of))


def _may_hold_other_rows(old: FingerprintPart, new: FingerprintPart, of: Fingerprint) -> bool:
    """Whether the new file of a table that is no partition may hold other values. DDL that writes these also changes a
    column. SET UNLOGGED does not, and is refused only for a table in a publication's list."""
    return old.attributes != new.attributes or not of.published_by_name


def _moved_file(old: FingerprintPart, new: FingerprintPart, of: Fingerprint) -> list[MovedFile]:
    if old.relfilenode == new.relfilenode or _is_rewritten(old, new, of):
        return []
    if new.parent:
        return [MovedFile(new.name, new.changed, _truncated_alone(new))]
    if new.reltoastrelid == 0 and _may_hold_other_rows(old, new, of):
        return [MovedFile(new.name, new.changed, "it was rewritten by DDL, or unlogged for a time")]
    return []
