"""The supported output plugins."""

from __future__ import annotations

from spark_jobs.capture.pgoutput.plugin import PGOUTPUT
from spark_jobs.capture.plugin import Plugin
from spark_jobs.capture.test_decoding.plugin import TEST_DECODING
from spark_jobs.configuration import Source
from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.slot import Options

OLDEST_SERVER, NEWEST_SERVER = 14, 19  # the versions that are tested
_PLUGINS = {"pgoutput": PGOUTPUT, "test_decoding": TEST_DECODING}
# the options that decide which changes are sent, with their defaults. All others decide only how changes are sent, and
# may differ from one window to the next
OF_THE_LOG = {"publication_names": "none", "origin": "any", "only-local": "0"}


def plugin_of(source: Source) -> Plugin:
    return _PLUGINS[source.plugin]


def plugin_options(source: Source, server_version: int) -> Options:
    """The (name, value) pairs for this source; ``server_version`` as in ``server_version_num``.

    Raises ConfigurationError for options that the plugin or the server does not support, and PreconditionError for a
    server older than ``OLDEST_SERVER``.
    """
    server = server_version // 10000
    if server < OLDEST_SERVER:
        raise PreconditionError(
            f"the server is PostgreSQL {server}; {OLDEST_SERVER} or newer is needed",
            hint="upgrade the server; a newer standby cannot decode for an older primary",
        )
    return plugin_of(source).options(source, server)
