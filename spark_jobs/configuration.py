"""What a pipeline is made of, checked and frozen: the engine's side of the configuration file.

``cdc_assets.configuration.load_pipeline`` reads the YAML into this; a program may build it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from pydantic import SecretStr

from spark_jobs.column_options import NO_OPTIONS, ColumnOptions, OnUnrepresentable
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.table_mask import SALT_VARIABLE, TableMask
from spark_jobs.table_mode import Mode

PluginName = Literal["pgoutput", "test_decoding"]


@dataclass(frozen=True)
class MessagePrefixes:
    """Which messages of ``pg_logical_emit_message`` are wanted: those of these prefixes, ``a.*`` for all that begin
    so."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class PluginSettings:
    """What a configuration has to know of an output plugin. (How it is read: ``capture.plugin``.)

    ``has_publications``: publications say which tables' changes come; without them those of all tables come, by name.
    ``refused``: the settings of ``source`` that mean nothing to it.
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
    """What keeps values from being masked before anything is written; empty: nothing does."""
    if not PLUGIN_SETTINGS[plugin].has_publications:
        return f"plugin: {plugin} prints whole rows as one text, in which no column is masked; use plugin: pgoutput"
    return "source.binary: true brings no text to make hashes of; use binary: false" if binary else ""


@dataclass(frozen=True)
class Source:
    """The PostgreSQL database and how its slot is read. ``dsn`` prints as stars.

    ``publication``: one name, made if missing; or several of the user's own. ``proto_version`` None: the highest that
    the server has. None of ``streaming``, ``two_phase``, ``binary`` and ``proto_version`` changes what is read.
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

    @property
    def publications(self) -> tuple[str, ...]:
        return (self.publication,) if isinstance(self.publication, str) else self.publication

    @property
    def has_publications(self) -> bool:
        """Whether publications say which tables' changes come."""
        return PLUGIN_SETTINGS[self.plugin].has_publications


@dataclass(frozen=True)
class Lake:
    """Where the Delta tables lie; every path is a pure function of ``path``, without a trailing slash."""

    path: str

    @property
    def change_log(self) -> str:
        return f"{self.path}/change_log"

    @property
    def cuts(self) -> str:
        return f"{self.path}/cuts"

    @property
    def messages(self) -> str:
        """No source table's: those have a schema's folder around them."""
        return f"{self.path}/tables/_messages"

    def table(self, name: QualifiedName) -> str:
        return f"{self.path}/tables/{name.path}"


@dataclass(frozen=True)
class WindowLimits:
    """How much WAL one window spans, and how many windows one run takes.

    ``peek_bytes``: a window of up to so much is peeked at, where the slot stands at its start; a larger one is read
    from a temporary copy of the slot. Such a copy writes a little WAL of its own: on a quiet database every run would
    find the WAL that the run before it wrote.
    """

    max_bytes: int = 256 << 20
    max_per_run: int = 64
    peek_bytes: int = 1 << 20


@dataclass(frozen=True)
class Retention:
    """How long windows stay in the change log and can be replayed, and how long cuts and the versions of the tables
    that they name can be read. What is still needed stays longer."""

    change_log: timedelta = timedelta(days=30)
    cuts: timedelta = timedelta(days=30)


@dataclass(frozen=True)
class Threshold:
    """From where on a number is worth a warning, or an error; None: never."""

    warn: int | None = None
    error: int | None = None


@dataclass(frozen=True)
class HealthLimits:
    """When the slot's health is worth a word: bytes, and seconds. ``safe_wal_size`` is too small, the others are too
    large. A finding stops nothing."""

    lag_bytes: Threshold = Threshold(1 << 30, 10 << 30)
    lag_seconds: Threshold = Threshold(3600)
    restart_bytes: Threshold = Threshold(10 << 30)
    oldest_transaction: Threshold = Threshold(3600)
    safe_wal_size: Threshold = Threshold(1 << 30)


@dataclass(frozen=True)
class ColumnSelection:
    """Columns by their names in the catalogue: those that ``include`` names alone, or all but those that ``exclude``
    does. One of the two is empty. What is left out never leaves the database.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """One followed table; ``columns`` None: all that the publication sends. ``key``: the columns of a unique index by
    which its rows are found, where the source has no key but sends whole rows. ``options``: of single columns.
    ``mask``: the columns of which hashes are kept in place of values."""

    name: QualifiedName
    mode: Mode = "mirror"
    columns: ColumnSelection | None = None
    key: tuple[str, ...] = ()
    options: ColumnOptions = NO_OPTIONS
    mask: tuple[str, ...] = ()


# who writes changes into tables: Spark all of them, or what is small without it
MergeEngine = Literal["spark", "auto"]


@dataclass(frozen=True)
class SparkOptions:
    """How to get a Spark session: a classic ``master`` or a Connect ``remote``, and where Delta's jars come from.

    ``jars`` is ``packages`` (Maven, by Spark), ``provided`` (the cluster has them) or a folder of jar files.
    """

    master: str | None = None
    remote: str | None = field(default=None, repr=False)  # may hold a token
    jars: str = "packages"
    config: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold keys of object stores


@dataclass(frozen=True)
class Pipeline:
    """One slot followed into one lake. ``tables`` is None for every table of the publication.

    ``tables_of_publication``: ``tables`` is what the publication held when it was asked, and not what it should hold.
    ``mask_salt``: the key of masked columns' hashes. Raises ConfigurationError: columns are to be masked, and there is
    no salt, or the source brings their values in a form that is not masked.
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

    def __post_init__(self) -> None:
        masked = ", ".join(str(table.name) for table in self.tables or () if table.mask)
        if masked and (why := why_not_maskable(self.source.plugin, binary=self.source.binary)):
            raise ConfigurationError(f"tables: mask of {masked}: {why}")
        if masked and not self._salt.strip():
            raise ConfigurationError(
                f"tables: mask of {masked}: the environment variable {SALT_VARIABLE} is not set, or is empty",
                hint="set it to a long random text, and keep it: with another one all masked tables are read again",
            )

    @property
    def masks(self) -> dict[QualifiedName, TableMask]:
        """Of the tables that have one."""
        return {table.name: TableMask(table.mask, self._salt) for table in self.tables or () if table.mask}

    def salt_word_of(self, name: QualifiedName) -> str:
        """That of the table's hashes, empty where nothing of it is masked."""
        mask = self.masks.get(name)
        return mask.salt_word if mask is not None else ""

    @property
    def _salt(self) -> bytes:
        return self.mask_salt.get_secret_value().encode() if self.mask_salt is not None else b""

    @property
    def column_selections(self) -> dict[QualifiedName, ColumnSelection]:
        """Of the tables that have one."""
        return {table.name: table.columns for table in self.tables or () if table.columns is not None}

    @property
    def declared_keys(self) -> dict[QualifiedName, tuple[str, ...]]:
        """Of the tables that have one in the configuration."""
        return {table.name: table.key for table in self.tables or () if table.key}

    def table(self, name: QualifiedName) -> Table:
        """What is configured of the table; the defaults, where nothing is."""
        return next((table for table in self.tables or () if table.name == name), Table(name))

    def column_options(self, name: QualifiedName) -> ColumnOptions:
        """What is said of the table's columns, the pipeline's policy included."""
        return replace(self.table(name).options, policy=self.on_unrepresentable)

    def mode_of(self, name: QualifiedName) -> Mode:
        """``mirror``, where nothing else is configured."""
        return self.table(name).mode

    @property
    def alters_publication(self) -> bool:
        """Whether a publication that is ours is kept in step with ``tables``."""
        return self.tables is not None and not self.tables_of_publication
