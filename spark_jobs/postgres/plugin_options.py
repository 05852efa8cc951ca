"""The options that the output plugin is started with.

https://www.postgresql.org/docs/current/protocol-logical-replication.html#PROTOCOL-LOGICAL-REPLICATION-PARAMS
"""

from __future__ import annotations

from spark_jobs.configuration import Source
from spark_jobs.errors import ConfigurationError

_ORIGIN_SINCE = 160000


def plugin_options(source: Source, server_version: int) -> tuple[tuple[str, str], ...]:
    """The (name, value) pairs for this source; ``server_version`` as in ``server_version_num``.

    Raises ConfigurationError for what this version of ours, or the server's, does not know.
    """
    _refuse_what_is_not_read_yet(source)
    options = [("proto_version", "1"), ("publication_names", quoted_name(source.publication))]
    if source.messages:
        options.append(("messages", "true"))
    if source.origin != "any":
        if server_version < _ORIGIN_SINCE:
            raise ConfigurationError(
                f"source.origin: {source.origin} needs PostgreSQL 16, the server is {server_version // 10000}",
                hint="use origin: any",
            )
        options.append(("origin", source.origin))
    return tuple(options)


def quoted_name(name: str) -> str:
    """As the option ``publication_names`` takes it: a list of SQL identifiers."""
    return '"' + name.replace('"', '""') + '"'


def _refuse_what_is_not_read_yet(source: Source) -> None:
    asked = {
        "plugin: test_decoding": source.plugin != "pgoutput",
        f"streaming: {source.streaming}": source.streaming != "off",
        "two_phase: true": source.two_phase,
        "binary: true": source.binary,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise ConfigurationError(f"source.{option} is not in this version", hint="leave it out")
