"""The options that pgoutput is started with. A setting that the server is too old for is refused by name.

https://www.postgresql.org/docs/current/protocol-logical-replication.html#PROTOCOL-LOGICAL-REPLICATION-PARAMS
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.configuration import Source
from spark_jobs.errors import ConfigurationError
from spark_jobs.postgres.slot import Options

_HIGHEST_PROTOCOL = {14: 2, 15: 3}
_HIGHEST = 4
_FIRST_SERVER = {1: 14, 2: 14, 3: 15, 4: 16}


@dataclass(frozen=True)
class _Need:
    """The first server and the first protocol that support a setting, and what to use instead."""

    setting: str
    server: int
    protocol: int
    instead: str


def options_of_pgoutput(source: Source, server: int) -> Options:
    """The (name, value) pairs for this source; ``server`` is the major version.

    Raises ConfigurationError for settings that the server or the configured protocol does not support.
    """
    protocol = _protocol(source, server)
    names = ",".join(map(quoted_name, source.publications))
    options = [("proto_version", str(protocol)), ("publication_names", names)]
    if source.messages:
        options.append(("messages", "true"))
    if source.binary:
        options.append(("binary", "true"))
    if source.streaming != "off":
        options.append(("streaming", source.streaming))
    if source.two_phase:
        options.append(("two_phase", "on"))
    if source.origin != "any":
        options.append(("origin", source.origin))
    return tuple(options)


def quoted_name(name: str) -> str:
    """The name quoted for the option ``publication_names``, a list of SQL identifiers."""
    return '"' + name.replace('"', '""') + '"'


def _protocol(source: Source, server: int) -> int:
    """The configured protocol, by default the highest that the server has."""
    highest = _HIGHEST_PROTOCOL.get(server, _HIGHEST)
    protocol = source.proto_version or highest
    for need in (
        *_needs(source),
        _Need(f"proto_version: {protocol}", _FIRST_SERVER[protocol], 1, f"{highest} or less"),
    ):
        if server < need.server:
            raise ConfigurationError(
                f"source.{need.setting} needs PostgreSQL {need.server}, the server is {server}",
                hint=f"use {need.instead}",
            )
        if protocol < need.protocol:
            raise ConfigurationError(
                f"source.{need.setting} needs protocol {need.protocol}, source.proto_version is {protocol}",
                hint=f"leave source.proto_version out, or use {need.instead}",
            )
    return protocol


def _needs(source: Source) -> Iterator[_Need]:
    if source.streaming == "on":
        yield _Need("streaming: on", 14, 2, "streaming: off")
    if source.streaming == "parallel":
        instead = "streaming: on, which reads the same"
        yield _Need("streaming: parallel", 16, 4, instead)
    if source.two_phase:
        yield _Need("two_phase: true", 15, 3, "two_phase: false, which reads the same")
    if source.origin != "any":
        yield _Need(f"origin: {source.origin}", 16, 1, "origin: any")
