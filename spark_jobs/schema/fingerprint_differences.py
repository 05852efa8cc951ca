"""What happened to a table between two looks at the catalogue: why rows may differ, and what is followed in place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint, FingerprintColumn, FingerprintPart
from spark_jobs.schema.lake_types import NUMERIC_OID, LakeType, is_widened, lake_type
from spark_jobs.schema.partition_bounds import Region, outermost
from spark_jobs.table_mask import why_masked_otherwise

# as quote_ident writes it
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")+"|[^", ]+')
_TEXT_OIDS = (25, 1043)  # text, varchar: one turns into the other without a rewrite, and both print the same


@dataclass(frozen=True)
class MovedFile:
    """A part whose rows lie in another file, and the catalogue does not say why. VACUUM FULL and CLUSTER keep each
    row's ``xmin``, TRUNCATE by transaction ``changed`` removes the rows, and other DDL writes them again.
    """

    name: QualifiedName
    changed: int
    reason: str


@dataclass(frozen=True)
class ColumnChange:
    """DDL on one column that left all rows as they are: ``what`` happened to the column number ``attnum``."""

    attnum: int
    what: str
    added: bool = False


@dataclass(frozen=True)
class Differences:
    """``reasons``: why rows may differ without an event; ``moved_files``: reasons unless they are explained.

    ``columns``: what the lake can follow in place, by attribute number. ``regions``: where all ``reasons`` are
    partitions that came or went, the rows that may differ by them; empty: any.
    """

    reasons: tuple[str, ...]
    moved_files: tuple[MovedFile, ...] = ()
    columns: tuple[ColumnChange, ...] = ()
    regions: tuple[Region, ...] = ()


def differences(before: Fingerprint, after: Fingerprint) -> Differences:
    """What happened between two looks at the table of the same OID or of the same name."""
    if before.relid != after.relid:
        return Differences((f"another table has the name {after.name} now",))
    widened = _widened(before, after) if _has_files_of(before, after) else ()
    columns = [*_columns(before, after), *widened]
    followed = {change.attnum for change in widened}
    reasons = [*_membership(before, after), *_type_changes(before, after, followed), *_types(before, after)]
    reasons += filter(None, [why_masked_otherwise(before.mask_word, after.mask_word)])
    moved: list[MovedFile] = []
    known = {part.relid: part for part in before.parts}
    if not _keeps_missing_values(known, after):
        reasons += [change.what for change in columns if change.added]
        columns = [change for change in columns if not change.added]
    regions: list[Region | None] = []
    for part in after.parts:
        old = known.pop(part.relid, None)
        if old is None or old.attached != part.attached:
            if not part.made_as_partition:
                reasons.append(f"partition {part.name} was attached")
                regions.append(_attached_region(before, after, old, part))
            continue
        others = _part_reasons(old, part, _renamed(before, after))
        reasons, regions = [*reasons, *others], [*regions, *(None for _ in others)]
        moved += _moved_file(old, part, after)
    reasons += [f"partition {part.name} was detached or dropped" for part in known.values()]
    regions += [before.region(part) for part in known.values()]
    # another reason than these has no region, and nothing does where columns are others by now
    known_regions = [region for region in regions if region is not None]
    are_all = len(reasons) == len(known_regions) and not columns
    within = outermost(known_regions) if are_all else ()
    return Differences(tuple(dict.fromkeys(reasons)), tuple(moved), tuple(columns), within)


def _has_files_of(before: Fingerprint, after: Fingerprint) -> bool:
    """Whether no row of the parts that both have can have been written again."""
    files = {part.relid: part.relfilenode for part in before.parts}
    return all(files.get(part.relid, part.relfilenode) == part.relfilenode for part in after.parts)


def _keeps_missing_values(before: Mapping[int, FingerprintPart], after: Fingerprint) -> bool:
    """Whether the catalogue still says what rows from before hold in a column that was added: a file that is
    written again, by VACUUM FULL too, holds it itself from then on. Of partitions each may say something else."""
    part = after.parts[0]
    old = before.get(part.relid)
    return len(after.parts) == 1 and old is not None and old.relfilenode == part.relfilenode


def _attached_region(
    before: Fingerprint, after: Fingerprint, old: FingerprintPart | None, new: FingerprintPart
) -> Region | None:
    """Of one that comes back under other bounds nobody knows which it had in between."""
    region = after.region(new)
    return region if old is None or before.region(old) == region else None


def _membership(before: Fingerprint, after: Fingerprint) -> list[str]:
    if before.entries == after.entries:
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


def _widened(before: Fingerprint, after: Fingerprint) -> tuple[ColumnChange, ...]:
    """Of a numeric that has more digits before the point PostgreSQL writes no row again, and the lake none that the
    source must send. (From 38 digits on the lake has another type.)"""
    known = {column.attnum: column for column in before.columns}
    return tuple(
        ColumnChange(column.attnum, f"column {column.attname} was widened")
        for column in after.columns
        if column.attnum in known and is_widened(_lake_type(known[column.attnum]), _lake_type(column))
    )


def _lake_type(column: FingerprintColumn) -> LakeType:
    return lake_type(column.atttypid, column.atttypmod)


def _type_changes(before: Fingerprint, after: Fingerprint, followed: Collection[int]) -> list[str]:
    """Without those that are ``followed`` in place."""
    known = {column.attnum: column for column in before.columns if column.attnum not in followed}
    return [
        f"the type of column {column.attname} was changed"
        for column in after.columns
        if column.attnum in known and _prints_otherwise(known[column.attnum], column)
    ]


def _renamed(before: Fingerprint, after: Fingerprint) -> dict[str, str]:
    """Old name → new name of the columns that are still there."""
    now = {column.attnum: column.attname for column in after.columns}
    return {column.attname: now[column.attnum] for column in before.columns if column.attnum in now}


def _prints_otherwise(old: FingerprintColumn, new: FingerprintColumn) -> bool:
    """Whether rows that were not rewritten have another value in the lake now. What is rewritten shows elsewhere."""
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
        labels = dict(now.labels)
        if any(labels.get(oid, label) != label for oid, label in old.labels):
            reasons.append(f"a label of enum {now.typname} was renamed")
        if old.attributes != now.attributes:
            reasons.append(f"attributes of type {now.typname} were added or dropped")
    return reasons


def _part_reasons(old: FingerprintPart, new: FingerprintPart, renamed: Mapping[str, str]) -> list[str]:
    what = "it" if new.parent == 0 else f"partition {new.name}"
    reasons = []
    if old.relpersistence != new.relpersistence:
        reasons.append(f"{what} was unlogged for a time")
    if _is_rewritten(old, new):
        reasons.append(f"{what} was rewritten by DDL")
    if old.placed != new.placed:
        reasons.append(f"{what} had another name or schema for a time")
    if [renamed.get(name, name) for name in _names(old.identity)] != _names(new.identity):
        reasons.append(f"the replica identity of {new.name} was changed")
    if old.primary_key and new.primary_key and old.primary_key != new.primary_key:
        # equal rows may have come and gone meanwhile, which a delete by key takes for one
        reasons.append(f"the primary key of {new.name} was dropped for a time")
    if old.declared_key != new.declared_key:
        reasons.append("its key was declared or given up, or the unique index behind it is another")
    if new.parent and _index_changed(old, new):
        reasons.append(f"the replica identity of {new.name} was another for a time")
    return reasons


def _names(identity: str) -> list[str]:
    """The columns of an identity; a partition's begins with its ``relreplident``."""
    found = _QUOTED_NAME.findall(identity)
    return [name[1:-1].replace('""', '"') if name.startswith('"') else name for name in found]


def _index_changed(old: FingerprintPart, new: FingerprintPart) -> bool:
    """The same index with another ``xmin``, though not because it was clustered on."""
    known = {index.split(":")[0]: index.split(":")[1:] for index in old.indexes}
    for index in new.indexes:
        oid, xmin, clustered = index.split(":")
        if oid in known and known[oid][0] != xmin and known[oid][1] == clustered:
            return True
    return False


def _is_rewritten(old: FingerprintPart, new: FingerprintPart) -> bool:
    """DDL that writes rows again makes a new TOAST table with the new file; VACUUM FULL, CLUSTER and TRUNCATE keep the
    TOAST table's OID."""
    return old.relfilenode != new.relfilenode and old.reltoastrelid != new.reltoastrelid


def _moved_file(old: FingerprintPart, new: FingerprintPart, of: Fingerprint) -> list[MovedFile]:
    if old.relfilenode == new.relfilenode or _is_rewritten(old, new):
        return []
    if new.parent:
        # its TRUNCATE is not sent where changes come under the name of the root
        return [MovedFile(new.name, new.changed, f"partition {new.name} was truncated on its own, or rewritten")]
    if new.reltoastrelid == 0 and (old.attributes != new.attributes or not of.published_by_name):
        # SET UNLOGGED, which leaves columns alone, is refused for a table in a publication's list
        return [MovedFile(new.name, new.changed, "it was rewritten by DDL, or unlogged for a time")]
    return []
