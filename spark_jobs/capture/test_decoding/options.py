"""The options that test_decoding is started with.

https://www.postgresql.org/docs/current/test-decoding.html
"""

from __future__ import annotations

from spark_jobs.configuration import Source
from spark_jobs.errors import ConfigurationError
from spark_jobs.postgres.slot import Options


def options_of_test_decoding(source: Source, _: int) -> Options:
    """The (name, value) pairs for this source. Raises ConfigurationError for settings this plugin does not support.

    With ``messages``, empty transactions must not be skipped: the plugin does not count a message as a change, and up
    to PostgreSQL 17 it prints a message that precedes the first change outside its transaction.
    ``two_phase`` needs no option: through a copy of the slot, a prepared transaction is sent at COMMIT PREPARED.
    """
    refused = {
        f"streaming: {source.streaming}": source.streaming != "off",
        "binary: true": source.binary,
    }
    for option, is_asked in refused.items():
        if is_asked:
            raise ConfigurationError(
                f"source.{option} is not for plugin: test_decoding, which sends neither streamed changes nor binary"
                " values",
                hint="leave it out, or use plugin: pgoutput",
            )
    options = [
        ("include-xids", "1"),
        ("include-timestamp", "1"),
        ("skip-empty-xacts", "0" if source.messages else "1"),
        ("include-rewrites", "0"),
    ]
    if source.origin == "none":
        options.append(("only-local", "1"))
    return tuple(options)
