"""The jar files of Delta Lake, and of the connector to an object store: which ones fit the installed pyspark, and how a
session gets them.

Three ways, by ``spark.jars`` of the configuration: ``packages`` (Spark fetches them from Maven), ``provided`` (the
cluster has them), or a folder of jar files, which ``python -m spark_jobs.spark.delta_jars FOLDER`` fills once.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError
from spark_jobs.object_stores import store_named, store_names

LOG_STORE = Path(__file__).parent / "log_store" / "postgres-cdc-log-store.jar"
_SCALA = "2.13"
# delta-storage is checked separately: a folder that was filled by hand often lacks it
_REQUIRED = ("delta-spark_{minor}_" + _SCALA, "delta-storage")


def delta_coordinate() -> str:
    """The Maven coordinate of the Delta build for the installed pyspark's minor version.

    Delta binds to Spark's internals, so the artifact is named for the Spark line: ``delta-spark_4.2_2.13``.
    """
    try:
        return f"io.delta:delta-spark_{_spark_minor()}_{_SCALA}:{version('delta-spark')}"
    except PackageNotFoundError as error:
        raise SparkError(
            f"the package {error.name} is not installed", hint="pip install dagster-postgres-cdc"
        ) from error


def coordinates(store: str | None) -> tuple[str, ...]:
    """Delta's, and those of the connector to this kind of object store."""
    return (delta_coordinate(), *(store_named(store).connector(_hadoop_version()) if store else ()))


def own_jars(store: str | None) -> tuple[Path, ...]:
    """What this package brings itself: a LogStore, where Delta's own commits without a condition."""
    return (LOG_STORE,) if store and store_named(store).log_store else ()


def jars_conf(options: SparkOptions) -> dict[str, str]:
    """The Spark confs that add the jars. Raises SparkError for a folder that does not hold them."""
    packages, excludes = "", ""
    if options.jars == "packages":
        packages = ",".join(coordinates(options.store))
        excludes = ",".join(store_named(options.store).excludes) if options.store else ""
    jars = [] if options.jars in ("packages", "provided") else _of_folder(options.jars, options.store)
    jars += [str(jar) for jar in own_jars(options.store)]
    conf = {"spark.jars": ",".join(jars), "spark.jars.packages": packages, "spark.jars.excludes": excludes}
    return {key: value for key, value in conf.items() if value}


def _of_folder(jars: str, store: str | None) -> list[str]:
    folder = Path(jars)
    for artifact in _required_artifacts(store):
        if not any(folder.glob(f"*{artifact}-[0-9]*.jar")):
            command = ["python", "-m", "spark_jobs.spark.delta_jars", jars, *(["--storage", store] if store else [])]
            raise SparkError(
                f"the jars folder {jars} holds no {artifact}-*.jar",
                hint=f"fill it with: {shlex.join(command)}",
            )
    return [str(jar.resolve()) for jar in sorted(folder.glob("*.jar")) if jar.name != LOG_STORE.name]


def fill_folder(folder: Path, store: str | None = None) -> bool:
    """Put the jars, and those of their dependencies that Spark lacks, into ``folder``. Returns False if there was
    nothing to do.

    Spark's own resolver (Ivy) does the work, with the proxies and repositories that Java and Spark are set up for.
    """
    from spark_jobs.spark.java import find_java

    packages = ",".join(coordinates(store))
    done = folder / "delta-jars.txt"  # written last: marks the folder as complete, and for which coordinates
    if done.is_file() and done.read_text().split() == [packages, *sorted(p.name for p in folder.glob("*.jar"))]:
        return False
    java = find_java()
    with tempfile.TemporaryDirectory(prefix="delta-jars-") as scratch:
        excludes = store_named(store).excludes if store else ()
        resolved = resolve_packages(packages, Path(scratch), java.home, excludes)
        folder.mkdir(parents=True, exist_ok=True)
        done.unlink(missing_ok=True)
        for old in folder.glob("*.jar"):
            old.unlink()
        for jar in (*resolved, *own_jars(store)):
            shutil.copy(jar, folder / jar.name)
    done.write_text("\n".join([packages, *sorted(p.name for p in folder.glob("*.jar"))]) + "\n")
    return True


def resolve_packages(packages: str, scratch: Path, java_home: Path, excludes: Sequence[str] = ()) -> list[Path]:
    """Let spark-submit run an empty program with the packages, and return the jars that it fetched."""
    program = scratch / "nothing.py"
    program.write_text("")
    command = [
        str(_spark_home() / "bin" / "spark-submit"),
        *("--master", "local[1]", "--packages", packages),
        *(("--exclude-packages", ",".join(excludes)) if excludes else ()),
        *("--conf", f"spark.jars.ivy={scratch / 'ivy'}"),
        str(program),
    ]
    environ = {**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
    answer = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    jars = sorted((scratch / "ivy" / "jars").glob("*.jar"))
    if answer.returncode != 0 or not jars:
        reason = re.search(r"unresolved dependency[^\n]*|Server access error[^\n]*", answer.stdout + answer.stderr)
        raise SparkError(
            f"{packages} could not be resolved from Maven ({reason[0] if reason else 'spark-submit failed'})",
            hint="check Java's proxy settings, or copy the jars into the folder by hand",
        )
    return not_shipped(jars)


def not_shipped(jars: Iterable[Path]) -> list[Path]:
    """Those of ``jars`` that Spark does not bring itself in some version. Ivy puts the organisation before the name."""
    shipped = {_artifact(jar.name) for jar in (_spark_home() / "jars").glob("*.jar")}
    return [jar for jar in jars if shipped.isdisjoint({_artifact(jar.name), _artifact(jar.name.partition("_")[2])})]


def _artifact(file_name: str) -> str:
    """``jackson-core`` of ``jackson-core-2.13.5.jar``."""
    return re.sub(r"-\d[^/]*\.jar$", "", file_name)


def _spark_home() -> Path:
    import pyspark

    return Path(str(pyspark.__file__)).parent


def _spark_minor() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def _hadoop_version() -> str:
    """Of pyspark's own Hadoop, whose version a connector must have."""
    [client] = (_spark_home() / "jars").glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


def _required_artifacts(store: str | None) -> tuple[str, ...]:
    connector = store_named(store).connector(_hadoop_version())[:1] if store else ()
    of_delta = (artifact.format(minor=_spark_minor()) for artifact in _REQUIRED)
    return (*of_delta, *(coordinate.split(":")[1] for coordinate in connector))


def main(arguments: list[str]) -> int:
    """``python -m spark_jobs.spark.delta_jars FOLDER [--storage STORE]``: exit code 0 when the folder is filled."""
    parser = argparse.ArgumentParser("python -m spark_jobs.spark.delta_jars", description="Fetch the jars from Maven.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--storage", choices=store_names(), help="add the connector to this object store")
    options = parser.parse_args(arguments)
    try:
        filled = fill_folder(options.folder, options.storage)
    except SparkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    fetched = "fetched into" if filled else "already in"
    sys.stderr.write(f"{', '.join(coordinates(options.storage))}: {fetched} {options.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
