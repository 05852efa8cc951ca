"""Why a table cannot be followed: for the doctor, for the checks before a table enters the publication, and for errors
when its changes are applied."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from spark_jobs.errors import PreconditionError
from spark_jobs.options.column_options import NO_OPTIONS, ChosenType, ColumnOptions
from spark_jobs.options.table_mode import Form, Mode, holds_changes, needs_key
from spark_jobs.qualified_name import QualifiedName, quoted_identifier
from spark_jobs.schema.chosen_types import chosen_lake_type, possible_types
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.reserved_columns import name_fault, name_remedy
from spark_jobs.schema.wire_type import unreadable_in_binary

NO_COLUMNS_REMEDY = (
    "add a column, and the next sync follows it; or leave the table out of tables: or of the publication"
)
_FOR_EACH_PART = (
    "DO $$BEGIN EXECUTE (SELECT string_agg(format('{statement}', relid), '; ')"
    " FROM pg_partition_tree('{root}'){which}); END$$"
)


def table_faults(
    facts: RelationFacts,
    *,
    binary: bool,
    sent: Collection[str],
    published: bool,
    form: Form,
    key: Sequence[str] = (),
    options: ColumnOptions = NO_OPTIONS,
) -> Iterator[PreconditionError]:
    """Every reason why the table cannot be followed. ``binary``: values are sent in binary. ``sent``: the columns that
    are sent. ``published``: a publication already has the table. ``form``, ``key`` and ``options`` (of its columns) are
    those that the configuration gives for the table."""
    generated = [
        c.attname for c in facts.columns if c.attname in facts.key and c.attname not in sent and c.attgenerated
    ]
    followed = replace(facts, columns=tuple(column for column in facts.columns if column.attname in sent))
    if key and (fault := declared_key_fault(facts, key)):
        yield fault
    if not facts.key and (fault := _keyless_fault(facts, published=published)):
        yield fault
    if fault := unsent_key_fault(facts, (*sent, *generated)):
        yield fault
    if generated:
        remedy = "give it a replica identity by a unique index without generated columns"
        yield _fault(facts.name, f"has a generated column in its key: {', '.join(generated)}", remedy)
    if names := name_fault(followed):
        yield _fault(facts.name, f"has {names}", name_remedy(followed))
    if binary and (fault := binary_fault(followed)):
        yield fault
    if fault := mode_fault(facts, sent, form):
        yield fault
    if fault := option_fault(facts, sent, options, form.mode):
        yield fault


def mode_fault(facts: RelationFacts, sent: Collection[str], form: Form) -> PreconditionError | None:
    """The mode needs a key that the table lacks, or the form adds a column whose name the table has already."""
    mode = form.mode
    if needs_key(mode) and not facts.key:
        what = f"has no key, and mode {mode} keeps rows by their key"
        return _fault(facts.name, what, "give it a primary key, or use mode mirror or append")
    ours = {column.name.lower() for column in mode_columns(mode)}
    if clashes := [name for name in sent if name.lower() in ours]:
        what = f"has columns that mode {mode} adds itself: {', '.join(clashes)}"
        remedy = "rename them at the source, leave them out with columns:, or use mode mirror"
        return _fault(facts.name, what, remedy)
    if clashes := [name for name in sent if name.lower() in form.commit_columns]:
        what = f"has columns that metadata_columns adds: {', '.join(clashes)}"
        remedy = "rename them at the source, leave them out with columns:, or take them out of metadata_columns:"
        return _fault(facts.name, what, remedy)
    return None


def option_fault(
    facts: RelationFacts, sent: Collection[str], options: ColumnOptions, mode: Mode
) -> PreconditionError | None:
    """An option for a column that is not ``sent``, or that cannot have it."""
    table, columns = facts.name, {column.attname: column for column in facts.columns if column.attname in sent}
    fields = {
        "types": [name for name, _ in options.types.columns],
        "on_unrepresentable": [name for name, _ in options.policies],
        "layout": options.layout.columns,
    }
    for field, names in fields.items():
        if unknown := [name for name in names if name not in columns]:
            what = f"has no column {', '.join(unknown)} that is followed, and {field}: names it"
            return _fault(table, what, f"expected some of {', '.join(columns)}")
    if keys := [name for name, _ in options.policies if name in facts.key]:
        what = f"has {', '.join(keys)} in its key, and a key column is never without its value"
        return _fault(table, what, "take it out of on_unrepresentable:")
    faults = (_type_fault(facts, columns[name], chosen, mode) for name, chosen in options.types.columns)
    return next((fault for fault in faults if fault), None)


def _type_fault(facts: RelationFacts, column: ColumnFacts, chosen: ChosenType, mode: Mode) -> PreconditionError | None:
    table, name = facts.name, column.attname
    if chosen_lake_type(chosen, column, facts.types) is None:
        what = f"has column {name} of type {column.typname}, which cannot be {chosen} as types: says"
        possible = possible_types(column, facts.types)
        return _fault(table, what, f"choose {possible}" if possible else "take it out of types:")
    if (
        name in facts.key and chosen.name != "binary"
    ):  # 1.0 and 1.00 can be two keys in one transaction, but are one decimal
        what = f"has {name} in its key, which keeps its own type, and types: says {chosen}"
        return _fault(table, what, "take it out of types:")
    if chosen.name in ("array", "variant") and not facts.key and not holds_changes(mode):
        what = f"has no key, so that rows are found by all their values, and {name} cannot be {chosen} then"
        return _fault(table, what, "give it a primary key, use mode append, or take it out of types:")
    return None


def declared_key_fault(facts: RelationFacts, key: Sequence[str]) -> PreconditionError | None:
    """A key in the configuration that the source contradicts, or that no unique index confirms."""
    table, named = facts.name, ", ".join(key)
    if not facts.sends_whole_rows:
        what = f"does not send whole rows, which key: {named} requires"
        whole = whole_rows_sql(facts.name, partitioned=bool(facts.leaf_identities))
        return _fault(table, what, f"take key: out, or let it send them: {whole}")
    if facts.key and set(facts.key) != set(key):
        what = f"has a key of its own, {', '.join(facts.key)}, and key: says {named}"
        return _fault(table, what, "take key: out of the configuration")
    own = [column.attname for column in facts.columns]
    if unknown := [name for name in key if name not in own]:
        what = f"has no column {', '.join(unknown)}, and key: names it"
        return _fault(table, what, f"expected some of {', '.join(own)}")
    if not facts.key:
        what = f"has no unique index on exactly {named}, all of them NOT NULL, as key: says"
        columns = [quoted_identifier(name) for name in key]
        not_null = ", ".join(f"ALTER {column} SET NOT NULL" for column in columns)
        remedy = f"CREATE UNIQUE INDEX ON {table} ({', '.join(columns)}); ALTER TABLE {table} {not_null}"
        return _fault(table, what, f"{remedy}, or take key: out")
    return None


def _keyless_fault(facts: RelationFacts, *, published: bool) -> PreconditionError | None:
    """Why a table without a key cannot be followed by its whole rows, None if it can.

    Without REPLICA IDENTITY FULL the source refuses every UPDATE and DELETE of a published table. If the table is
    already published so, its owner accepts that, and only inserts are possible.
    """
    if facts.sends_whole_rows or (published and not any(facts.leaf_identities)):
        return None
    if facts.leaf_identities:
        what = "has no key that each of its partitions sends with its changes"
        whole = whole_rows_sql(facts.name, partitioned=True)
        remedy = f"give root and partitions the same primary key, or follow it by its whole rows: {whole}"
        return _fault(facts.name, what, remedy)
    what = f"has no usable key (replica identity {facts.relreplident})"
    remedy = f"give it a primary key, or follow it by its whole rows: ALTER TABLE {facts.name} REPLICA IDENTITY FULL"
    return _fault(facts.name, what, remedy)


def whole_rows_sql(table: QualifiedName, *, partitioned: bool) -> str:
    """The statement after which changes are sent with their whole old row. The replica identity of a partitioned table
    does not reach its partitions, of which there may be many, so one statement alters them all."""
    if not partitioned:
        return f"ALTER TABLE {table} REPLICA IDENTITY FULL"
    return for_each_part(table, "ALTER TABLE ", " REPLICA IDENTITY FULL", only_leaves=True)


def for_each_part(root: QualifiedName, before: str, after: str, *, only_leaves: bool = False) -> str:
    """One statement for a partitioned table and its partitions, of which there may be many. ``before`` and ``after``:
    what is to be executed, around the name of each."""
    statement = "%s".join(text.replace("%", "%%") for text in (before, after))
    return _FOR_EACH_PART.format(
        statement=statement.replace("'", "''"),
        root=str(root).replace("'", "''"),
        which=" WHERE isleaf" if only_leaves else "",
    )


def unsent_key_fault(facts: RelationFacts, sent: Collection[str]) -> PreconditionError | None:
    """A key column that changes do not include. ``sent``: the columns that are sent with a change."""
    if unsent := [name for name in facts.key if name not in sent]:
        what = f"has a key column that is not published: {', '.join(unsent)}"
        listed = ", ".join(
            quoted_identifier(c.attname) for c in facts.columns if c.attname in sent or c.attname in facts.key
        )
        remedy = (
            "keep its WHERE, if it has one:"
            f" ALTER PUBLICATION ... DROP TABLE {facts.name}; ALTER PUBLICATION ... ADD TABLE {facts.name} ({listed})"
        )
        return _fault(facts.name, what, remedy)
    return None


def binary_fault(facts: RelationFacts) -> PreconditionError | None:
    """Columns whose values would be sent in a binary form that this version cannot read."""
    unreadable = unreadable_in_binary(facts)
    if not unreadable:
        return None
    columns = ", ".join(f"{column.attname} ({column.typname})" for column in unreadable)
    remedy = "set source.binary: false, or take the table out of tables:"
    return _fault(facts.name, f"has columns that cannot be read in binary: {columns}", remedy)


def unlogged_fault(table: str) -> PreconditionError:
    """The fault of a table, or of a partition, that is unlogged or temporary."""
    return _fault(
        table,
        "is unlogged: its changes are not in the WAL",
        f"ALTER TABLE {table} SET LOGGED; a new snapshot follows by itself",
    )


def foreign_fault(table: QualifiedName, partition: str) -> PreconditionError:
    """The fault of a partitioned table one of whose partitions is a foreign table."""
    what = f"has a partition, {partition}, that is a foreign table: changes of its rows are not in the WAL"
    remedy = f"leave {table} out of tables: or of the publication, or detach {partition}"
    return _fault(table, what, remedy)


def no_columns_fault(table: QualifiedName) -> PreconditionError:
    """The fault of a table that has no column, or only generated ones: Delta Lake has no such tables."""
    what = "has no columns that are sent, and a Delta table must have one"
    return _fault(table, what, NO_COLUMNS_REMEDY)


def _fault(table: object, what: str, remedy: str) -> PreconditionError:
    """``what`` is wrong, to be read after the table's name ("has no usable key")."""
    return PreconditionError(f"table {table} {what}", hint=remedy)
