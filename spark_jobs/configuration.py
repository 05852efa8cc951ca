"""What a pipeline is made of, checked and frozen: the engine's side of the configuration file.

``cdc_assets.configuration.load_pipeline`` reads the YAML into this; a program may build it by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal, TypeVar

from pydantic import SecretStr

from spark_jobs.errors import ConfigurationError
from spark_jobs.options.column_options import NO_OPTIONS, ColumnOptions, OnUnrepresentable
from spark_jobs.options.folder_template import DEFAULT_FOLDERS, MESSAGES_FOLDER, UNREPRESENTABLE_FOLDER, FolderTemplate
from spark_jobs.options.health_limits import HealthLimits
from spark_jobs.options.schema_policy import FOLLOW_ALL, SchemaPolicy
from spark_jobs.options.table_mask import SALT_VARIABLE, TableMask
from spark_jobs.options.table_mode import CommitColumn, Form, Mode, holds_changes
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.options.time_partitions import Periods
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location, Storage

PluginName = Literal["pgoutput", "test_decoding"]
Found = TypeVar("Found")


@dataclass(frozen=True)
class MessagePrefixes:
    """Which messages of ``pg_logical_emit_message`` are kept: those with one of these prefixes; ``a.*`` stands for all
    prefixes that begin with ``a.``."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class PluginSettings:
    """What the configuration must know of an output plugin. (``capture.plugin`` knows how to read it.)

    ``has_publications``: publications determine the tables whose changes are sent; without them the changes of all
    tables are sent, by name. ``refused``: the settings of ``source`` that do not apply to the plugin.
    """

    has_publications: bool
    refused: tuple[str, ...] = ()


PLUGIN_SETTINGS: Mapping[PluginName, PluginSettings] = {
    "pgoutput": PluginSettings(has_publications=True),
    "test_decoding": PluginSettings(
        has_publications=False, refused=("streaming", "binary", "publication", "proto_version")
    ),
}


def why_not_maskable(plugin: PluginName, *, binary: bool) -> str:
    """Why values cannot be masked before they are written; empty if they can."""
    if not PLUGIN_SETTINGS[plugin].has_publications:
        return f"plugin: {plugin} prints whole rows as one text, in which no column is masked; use plugin: pgoutput"
    return "source.binary: true sends no text to hash; use binary: false" if binary else ""


@dataclass(frozen=True)
class Source:
    """The PostgreSQL database and how its slot is read. ``dsn`` prints as stars.

    ``publication``: one name, created if missing; or several publications of the user's. ``proto_version`` None: the
    server's highest. ``streaming``, ``two_phase``, ``binary`` and ``proto_version`` do not change what is read.
    ``adopt_slot``: a new change log may be read from a slot that is read for another one.
    """

    dsn: SecretStr
    slot: str
    publication: str | tuple[str, ...]
    plugin: PluginName = "pgoutput"
    streaming: Literal["off", "on", "parallel"] = "off"
    two_phase: bool = False
    origin: Literal["any", "none"] = "any"
    messages: bool | MessagePrefixes = False
    binary: bool = False
    proto_version: Literal[1, 2, 3, 4] | None = None
    adopt_slot: bool = False

    @property
    def publications(self) -> tuple[str, ...]:
        return (self.publication,) if isinstance(self.publication, str) else self.publication

    @property
    def has_publications(self) -> bool:
        """Whether publications determine the tables whose changes are sent."""
        return PLUGIN_SETTINGS[self.plugin].has_publications


@dataclass(frozen=True)
class Lake:
    """Where the Delta tables are; every location is a pure function of ``path``, without a trailing slash, and
    ``tables``.

    ``catalog``: the name of each table in Spark's catalogue, with ``{schema}`` and ``{table}`` in it; empty: none.
    """

    path: str
    storage: Storage = field(default_factory=Storage, repr=False, compare=False)
    catalog: str = ""
    tables: FolderTemplate = DEFAULT_FOLDERS

    @property
    def root(self) -> Location:
        return Location(self.path, self.storage)

    @property
    def change_log(self) -> Location:
        return self.root / "change_log"

    @property
    def cuts(self) -> Location:
        return self.root / "cuts"

    @property
    def unrepresentable(self) -> Location:
        return self.root / UNREPRESENTABLE_FOLDER

    @property
    def messages(self) -> Location:
        """No source table has this folder."""
        return self.root / MESSAGES_FOLDER

    def table(self, name: QualifiedName) -> Location:
        """No source table has an empty schema: that is the messages table."""
        return self.root / self.tables.folder(name) if name.nspname else self.messages

    @property
    def all_staging(self) -> Location:
        return self.root / "_staging"

    def staging(self, name: QualifiedName) -> Location:
        """For what is computed or read of the table and not committed yet."""
        return self.all_staging / name.path

    def catalog_name(self, name: QualifiedName) -> tuple[str, ...]:
        """The parts of the table's name in Spark's catalogue; empty if it has none."""
        parts = self.catalog.split(".") if self.catalog else ()
        return tuple(part.replace("{schema}", name.nspname).replace("{table}", name.relname) for part in parts)


@dataclass(frozen=True)
class WindowLimits:
    """How much WAL one window spans, and how many windows one run takes.

    ``peek_bytes``: a window of up to this size is peeked at if the slot stands at its start; a larger one is read from
    a temporary copy of the slot. Copying a slot writes a little WAL: with copies alone, every run on a quiet database
    would find the WAL of the run before. ``halved_bytes``: a larger window is read in two halves at once, where slots
    are free.
    """

    max_bytes: int = 256 << 20
    max_per_run: int = 64
    peek_bytes: int = 1 << 20
    halved_bytes: int = 64 << 20


@dataclass(frozen=True)
class SnapshotOptions:
    """How large tables are read. ``chunk_bytes``: about so much of the table in each transaction; smaller tables are
    read in one. ``parallel``: how many chunks at once; None: as many as there are cores. ``bytes_per_second``: the most
    that is read of the source; None: as much as it sends. ``partial``: what is read so far is shown, as a
    table of its own."""

    chunk_bytes: int = 256 << 20
    parallel: int | None = None
    bytes_per_second: int | None = None
    partial: bool = False


@dataclass(frozen=True)
class Retention:
    """``change_log``: how long windows stay in the change log and can be replayed. ``cuts``: how long cuts, and the
    table versions that they name, can be read. What is still needed is kept longer."""

    change_log: timedelta = timedelta(days=30)
    cuts: timedelta = timedelta(days=30)


@dataclass(frozen=True)
class ColumnSelection:
    """Columns by their names in the catalogue: only those in ``include``, or all except those in ``exclude``. One of
    the two is empty. An excluded column never leaves the database.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Adopted:
    """The table that another tool has loaded: a Delta table, or a folder of Parquet files, at ``path``. ``columns``:
    pairs of a column of ours and its name there, where that is another one."""

    path: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Table:
    """One followed table, by its name in the lake. ``columns`` None: all that the publication sends. ``key``: the
    columns of a unique index that identify its rows, if the source has no key but sends whole rows. ``options``: of
    single columns. ``mask``: the columns whose values are replaced by hashes. ``on_schema_change``: None if the
    pipeline's holds. ``metadata_columns``: those that say of each row which commit last wrote it. ``shows``: the source
    table, where that has another name. ``begins_empty``: its snapshots read no rows of the source. ``adopt``: where
    its first snapshot takes the rows from that are equal to those of the source.

    Raises ConfigurationError for a table that begins empty in a mode other than ``append``.
    """

    name: QualifiedName
    mode: Mode = "mirror"
    columns: ColumnSelection | None = None
    key: tuple[str, ...] = ()
    options: ColumnOptions = NO_OPTIONS
    mask: tuple[str, ...] = ()
    on_schema_change: SchemaPolicy | None = None
    metadata_columns: tuple[CommitColumn, ...] = ()
    shows: QualifiedName | None = None
    begins_empty: bool = False
    adopt: Adopted | None = None

    def __post_init__(self) -> None:
        if self.begins_empty and not holds_changes(self.mode):
            raise ConfigurationError(
                f"tables: {self.name}: snapshot: none leaves out the rows that mode {self.mode} would have to show",
                hint="with snapshot: none write mode: append",
            )
        if self.begins_empty and self.adopt:
            raise ConfigurationError(
                f"tables: {self.name}: snapshot: none adopts no rows", hint="leave out snapshot: none, or adopt"
            )

    @property
    def relation(self) -> QualifiedName:
        """The source table."""
        return self.shows or self.name

    @property
    def form(self) -> Form:
        return Form.of(self.mode, self.metadata_columns)


def named_twice(table: Table) -> ConfigurationError:
    """The error if the source has a table of the name that ``table``, a further one of its source table, has."""
    return ConfigurationError(
        f"tables: {table.name} is a table of the source, and what {table.relation} is called in mode {table.mode}",
        hint=f"leave one of them out: {table.name}, or mode {table.mode} of {table.relation}",
    )


@dataclass(frozen=True)
class TablePatterns:
    """Which of the source's tables are followed, where the configuration does not name all of them one by one.

    ``tables``: names and patterns; empty for every table of the publication. ``exclude``: what is left out of them.
    ``settings``: the lake's tables of a source table that has this name. ``masking``: those of ``tables`` whose columns
    are masked, for messages.
    """

    tables: tuple[TablePattern, ...]
    exclude: tuple[TablePattern, ...]
    settings: Callable[[QualifiedName], tuple[Table, ...]] = field(repr=False, compare=False)
    masking: tuple[TablePattern, ...] = ()

    def follows(self, name: QualifiedName) -> bool:
        is_included = not self.tables or any(pattern.matches(name) for pattern in self.tables)
        return is_included and not any(pattern.matches(name) for pattern in self.exclude)

    def of(self, candidates: Iterable[QualifiedName]) -> tuple[QualifiedName, ...]:
        """The names to follow, in the order of ``tables``: those of ``candidates`` that match a pattern, and plain
        names whether or not they are among them."""
        candidates = tuple(candidates)
        names: dict[QualifiedName, None] = {} if self.tables else dict.fromkeys(candidates)
        for pattern in self.tables:
            names |= dict.fromkeys([pattern.name] if pattern.name is not None else filter(pattern.matches, candidates))
        return tuple(filter(self.follows, names))


# what writes the rows of tables: Spark alone; or, where that is cheaper, this process with ``deltalake``, else Spark
MergeEngine = Literal["spark", "auto"]


@dataclass(frozen=True)
class SparkOptions:
    """How to get a Spark session: a classic ``master`` or a Connect ``remote``, and where Delta's jars come from.

    ``jars`` is ``packages`` (Maven, by Spark), ``provided`` (the cluster has them) or a folder of jar files.
    ``handed_in``: the caller brings the session, whose executors may be anywhere. ``store``: the kind of object store
    that the session is to open, by the scheme of its paths; its connector is added to the jars.
    """

    master: str | None = None
    remote: str | None = field(default=None, repr=False)  # may hold a token
    jars: str = "packages"
    config: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold keys of object stores
    handed_in: bool = field(default=False, compare=False)
    store: str | None = None

    @property
    def sets_delta(self) -> bool:
        """Whether there are settings for Delta tables, which only Spark follows."""
        return any(key.startswith("spark.databricks.delta.") for key, _ in self.config)


@dataclass(frozen=True)
class Pipeline:
    """One slot followed into one lake. ``tables`` is None for every table of the publication.

    ``patterns``: what ``tables`` is found by, in the source; ``tables`` is None until it was found
    (``tables.at_source``), and then what the source had at that time.
    ``tables_of_publication``: ``tables`` is what the publication held when it was queried, not what it should hold.
    ``mask_salt``: the key of masked columns' hashes. ``periods``: the days and hours that get a cut at their ends.
    Raises ConfigurationError if columns are to be masked and there is no salt, or the source sends their values in a
    form that cannot be masked; and if two tables have one name in the lake.
    """

    name: str
    source: Source
    lake: Lake
    windows: WindowLimits = field(default_factory=WindowLimits)
    tables: tuple[Table, ...] | None = None
    on_unrepresentable: OnUnrepresentable = "error"
    on_rewrite: Literal["resnapshot", "error"] = "resnapshot"
    spark: SparkOptions = field(default_factory=SparkOptions)
    tables_of_publication: bool = False
    retention: Retention = field(default_factory=Retention)
    health: HealthLimits = field(default_factory=HealthLimits)
    mask_salt: SecretStr | None = None
    merge_engine: MergeEngine = "spark"
    patterns: TablePatterns | None = None
    on_schema_change: SchemaPolicy = FOLLOW_ALL
    writes: WriteLimits = field(default_factory=WriteLimits)
    snapshot: SnapshotOptions = field(default_factory=SnapshotOptions)
    periods: tuple[Periods, ...] = ()

    def __post_init__(self) -> None:
        patterns = self.patterns.masking if self.patterns is not None else ()
        masked = ", ".join(
            map(str, patterns or dict.fromkeys(each.relation for each in self.tables or () if each.mask))
        )
        if masked and (why := why_not_maskable(self.source.plugin, binary=self.source.binary)):
            raise ConfigurationError(f"tables: mask of {masked}: {why}")
        if masked and not self._salt.strip():
            raise ConfigurationError(
                f"tables: mask of {masked}: the environment variable {SALT_VARIABLE} is not set, or is empty",
                hint="set it to a long random text, and keep it: with another one all masked tables need a re-snapshot",
            )
        if twice := next(
            (table for table in self.tables or () if table.shows and table.name in self._by_relation), None
        ):
            raise named_twice(twice)

    @cached_property
    def masks(self) -> dict[QualifiedName, TableMask]:
        """Those of the source tables that have one."""
        return {table.relation: TableMask(table.mask, self._salt) for table in self._found if table.mask}

    def salt_word_of(self, name: QualifiedName) -> str:
        """The word of the table's salt, empty if none of its columns is masked."""
        mask = self.masks.get(self.relation(name))
        return mask.salt_word if mask is not None else ""

    @property
    def _salt(self) -> bytes:
        return self.mask_salt.get_secret_value().encode() if self.mask_salt is not None else b""

    @cached_property
    def column_selections(self) -> dict[QualifiedName, ColumnSelection]:
        """Those of the source tables that have one."""
        return {table.relation: table.columns for table in self._found if table.columns is not None}

    @cached_property
    def declared_keys(self) -> dict[QualifiedName, tuple[str, ...]]:
        """The configured keys, of the source tables that have one."""
        return {table.relation: table.key for table in self._found if table.key}

    def table(self, name: QualifiedName) -> Table:
        """The configuration of the lake's table, or the defaults if there is none."""
        return self._by_name.get(name) or self.tables_of(name)[0]

    def tables_of(self, relation: QualifiedName) -> tuple[Table, ...]:
        """The lake's tables of a source table, at least one: with the defaults if it is not in the configuration."""
        if known := self._by_relation.get(relation):
            return tuple(known)
        if self.patterns is not None and self.patterns.follows(relation):
            return self.patterns.settings(relation)
        return (Table(relation),)

    def relation(self, name: QualifiedName) -> QualifiedName:
        """The source table that the lake's table shows."""
        return self.table(name).relation

    def relations(self, names: Iterable[QualifiedName]) -> tuple[QualifiedName, ...]:
        """The source tables that these tables of the lake show, each once."""
        return tuple(dict.fromkeys(map(self.relation, names)))

    def by_name(
        self, names: Iterable[QualifiedName], values: Mapping[QualifiedName, Found]
    ) -> dict[QualifiedName, Found]:
        """The ``values`` of source tables, for the tables of the lake that show them."""
        return {name: values[relation] for name in names if (relation := self.relation(name)) in values}

    def names_singly(self, name: QualifiedName) -> bool:
        """Whether the configuration means just this source table. What is wrong with it is then wrong in the
        configuration; a table that only a pattern matches may be stopped alone."""
        return self.patterns is None or any(pattern.name == name for pattern in self.patterns.tables)

    @property
    def _found(self) -> tuple[Table, ...]:
        """A caller who has not asked which tables match the patterns would believe that nothing is masked."""
        assert self.patterns is None or self.tables is not None, "see tables.at_source"
        return self.tables or ()

    @cached_property
    def _by_name(self) -> dict[QualifiedName, Table]:
        return {table.name: table for table in self.tables or ()}

    @cached_property
    def _by_relation(self) -> dict[QualifiedName, list[Table]]:
        tables: dict[QualifiedName, list[Table]] = {}
        for table in self.tables or ():
            tables.setdefault(table.relation, []).append(table)
        return tables

    def may_replace_values(self, name: QualifiedName) -> bool:
        """Whether a value of the table that its type cannot hold may be stored otherwise, in place of an error."""
        options = self.column_options(name)
        return any(policy != "error" for policy in (options.policy, *dict(options.policies).values()))

    def column_options(self, name: QualifiedName) -> ColumnOptions:
        """The options of the table's columns, including the pipeline's policy."""
        return replace(self.table(name).options, policy=self.on_unrepresentable)

    def schema_policy(self, name: QualifiedName) -> SchemaPolicy:
        return self.table(name).on_schema_change or self.on_schema_change

    @property
    def alters_publication(self) -> bool:
        """Whether our publication is kept in step with ``tables``."""
        return self.tables is not None and not self.tables_of_publication
