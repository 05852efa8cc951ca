"""What a pipeline is made of, checked and frozen: the engine's side of the configuration file.

``cdc_assets.configuration.load_pipeline`` reads the YAML into this; a program may build it by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import SecretStr

from spark_jobs.qualified_name import QualifiedName

Mode = Literal["mirror", "soft_delete", "history", "append"]


@dataclass(frozen=True)
class MessagePrefixes:
    """Of ``pg_logical_emit_message``: the messages of these prefixes, ``a.*`` for all that begin so."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """The PostgreSQL database and how its slot is read. ``dsn`` prints as stars.

    ``publication``: one name, made if missing; or several of the user's own. ``proto_version`` None: the highest that
    the server has. None of ``streaming``, ``two_phase``, ``binary`` and ``proto_version`` changes what is read.
    """

    dsn: SecretStr
    slot: str
    publication: str | tuple[str, ...]
    plugin: Literal["pgoutput", "test_decoding"] = "pgoutput"
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
        """Whether publications say which tables' changes come; test_decoding prints those of all tables, by name."""
        return self.plugin == "pgoutput"


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
    """How much WAL one window spans, and how many windows one run takes."""

    max_bytes: int = 256 << 20
    max_per_run: int = 64


@dataclass(frozen=True)
class Table:
    """One followed table."""

    name: QualifiedName
    mode: Mode = "mirror"


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
    """

    name: str
    source: Source
    lake: Lake
    windows: WindowLimits = field(default_factory=WindowLimits)
    tables: tuple[Table, ...] | None = None
    on_unrepresentable: Literal["error", "null"] = "error"
    on_rewrite: Literal["resnapshot", "error"] = "resnapshot"
    spark: SparkOptions = field(default_factory=SparkOptions)
    tables_of_publication: bool = False

    @property
    def alters_publication(self) -> bool:
        """Whether a publication that is ours is kept in step with ``tables``."""
        return self.tables is not None and not self.tables_of_publication
