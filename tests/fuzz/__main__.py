"""``python -m tests.fuzz FOLDER [libFuzzer's options]``: fuzz all targets, keep the corpus in FOLDER.

A failing input is written beside it (``crash-…``); ``python -m tests.fuzz FOLDER crash-…`` runs it again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # installed by `make fuzz` alone

_READERS = ["spark_jobs.logicalrep", "spark_jobs.decode", "spark_jobs.change_log", "tests.reference"]
with atheris.instrument_imports(include=_READERS):
    from tests.fuzz.targets import TARGETS


def one_input(data: bytes) -> None:
    """The first byte says which target."""
    if len(data) >= 2:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def main() -> None:
    from tests.fuzz.corpus import write_seeds

    folder, *options = sys.argv[1:]
    write_seeds(Path(folder))
    crash = [option for option in options if not option.startswith("-")]
    atheris.Setup([sys.argv[0], *options, *([] if crash else [folder])], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
