"""Delta's jars on the class path of a JVM on this machine.

Spark loads what ``spark.jars`` names through a class loader of its own, whose classes no archive can hold, and copies
each file first. And with ``spark.jars.packages`` each start asks Ivy again, which costs one to two seconds even if it
has everything: so what it found is remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.cache_folder import is_trusted, trusted_cache
from spark_jobs.spark.delta_jars import coordinates, jars_conf, not_shipped, own_jars

# a user's own settings of these kinds decide what is found, or where
_OTHERS = ("spark.jars.packages", "spark.jars.excludes", "spark.jars.repositories", "spark.jars.ivy")


def class_path(options: SparkOptions) -> str:
    """The files with Delta's jars, as a class path; empty if Spark has to load them in its own way.

    It belongs after Spark's own jars, as what ``spark.jars`` names is looked at after them too. Raises SparkError for a
    folder that does not hold them.
    """
    if options.jars == "provided":
        return ""
    if options.jars == "packages":
        jars = _remembered(options)
        jars += map(str, own_jars(options.store)) if jars else ()
    else:
        jars = [str(jar) for jar in not_shipped(map(Path, jars_conf(options)["spark.jars"].split(",")))]
    return "" if any(os.pathsep in jar for jar in jars) else os.pathsep.join(jars)


def remember(options: SparkOptions, paths: Sequence[str]) -> None:
    """Keep the paths that Spark found for ``packages``. If they cannot be kept, the next start looks again."""
    file = _file(options)
    jars = [jar.removeprefix("file:") for jar in paths]
    if file is None or not jars or not all(Path(jar).is_file() for jar in jars):
        return
    own = own_jars(options.store)
    kept = not_shipped(path for path in map(Path, jars) if path not in own)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, text=True)
        with os.fdopen(descriptor, "w") as stream:
            json.dump({str(jar): jar.stat().st_size for jar in kept}, stream)
        Path(temporary).replace(file)
    except OSError:
        return


def _remembered(options: SparkOptions) -> list[str]:
    """Empty if nothing is remembered, or if a file has gone or changed since."""
    file = _file(options)
    if file is None or not is_trusted(file):
        return []
    try:
        jars: dict[str, int] = json.loads(file.read_text())
        return list(jars) if all(Path(jar).stat().st_size == size for jar, size in jars.items()) else []
    except (OSError, ValueError, AttributeError):
        return []


def _file(options: SparkOptions) -> Path | None:
    """Where they are remembered; None where they must not be."""
    if options.jars != "packages" or any(key.startswith(_OTHERS) for key, _ in options.config):
        return None
    folder = trusted_cache()
    digest = hashlib.sha256(",".join(coordinates(options.store)).encode()).hexdigest()[:12]
    return folder and folder / f"packages-{digest}.json"
