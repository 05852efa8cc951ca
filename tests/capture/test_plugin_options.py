"""Options for every server: the highest protocol, and what is refused, by name and with the way out."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from spark_jobs.capture.plugins import plugin_options
from spark_jobs.configuration import MessagePrefixes, Source
from spark_jobs.errors import ConfigurationError, PreconditionError


def options(server: int, **asked: Any) -> dict[str, str]:
    return dict(plugin_options(Source(SecretStr(""), "sl", **{"publication": "p", **asked}), server * 10000 + 3))


@pytest.mark.parametrize(("server", "protocol"), [(14, "2"), (15, "3"), (16, "4"), (17, "4"), (18, "4"), (19, "4")])
def test_a_plain_run_speaks_the_highest_protocol(server: int, protocol: str) -> None:
    assert options(server) == {"proto_version": protocol, "publication_names": '"p"'}


def test_all_configured_options_are_passed_on() -> None:
    asked = {"streaming": "parallel", "two_phase": True, "origin": "none", "messages": True, "binary": True}
    assert options(16, **asked) == {
        "proto_version": "4",
        "publication_names": '"p"',
        "messages": "true",
        "binary": "true",
        "streaming": "parallel",
        "two_phase": "on",
        "origin": "none",
    }
    assert options(14, messages=MessagePrefixes(("a.*",)))["messages"] == "true"
    assert options(18, proto_version=1)["proto_version"] == "1"
    assert options(15, publication=("p", 'a "b", c'))["publication_names"] == '"p","a ""b"", c"'


@pytest.mark.parametrize(
    ("server", "asked", "said"),
    [
        (15, {"streaming": "parallel"}, "streaming: parallel needs PostgreSQL 16, the server is 15: use streaming: on"),
        (14, {"two_phase": True}, "two_phase: true needs PostgreSQL 15, the server is 14: use two_phase: false"),
        (15, {"origin": "none"}, "origin: none needs PostgreSQL 16, the server is 15: use origin: any"),
        (14, {"proto_version": 3}, "proto_version: 3 needs PostgreSQL 15, the server is 14: use 2 or less"),
        (15, {"proto_version": 4}, "proto_version: 4 needs PostgreSQL 16, the server is 15: use 3 or less"),
        (18, {"proto_version": 1, "streaming": "on"}, "streaming: on needs protocol 2, source.proto_version is 1"),
        (
            18,
            {"proto_version": 3, "streaming": "parallel"},
            "streaming: parallel needs protocol 4, source.proto_version",
        ),
        (18, {"proto_version": 2, "two_phase": True}, "two_phase: true needs protocol 3, source.proto_version is 2"),
    ],
)
def test_what_the_server_or_the_protocol_lacks_is_refused(server: int, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        options(server, **asked)
    assert f"source.{said}" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("plugin", ["pgoutput", "test_decoding"])
def test_an_old_server_is_refused_altogether(plugin: str) -> None:
    with pytest.raises(PreconditionError, match=r"the server is PostgreSQL 13; 14 or newer is needed"):
        options(13, plugin=plugin)
