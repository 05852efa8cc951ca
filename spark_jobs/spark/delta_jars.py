"""Delta Lake's jar files: which ones fit the installed pyspark, and how a session gets them.

Three ways, by ``spark.jars`` of the configuration: ``packages`` (Spark fetches them from Maven), ``provided`` (the
cluster has them), or a folder of jar files, which ``python -m spark_jobs.spark.delta_jars FOLDER`` fills once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from spark_jobs.errors import SparkError

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


def jars_conf(jars: str) -> tuple[tuple[str, str], ...]:
    """The Spark confs that add Delta's jars. Raises SparkError for a folder that does not hold them."""
    if jars == "packages":
        return (("spark.jars.packages", delta_coordinate()),)
    if jars == "provided":
        return ()
    folder = Path(jars)
    for artifact in _required_artifacts():
        if not any(folder.glob(f"*{artifact}-[0-9]*.jar")):
            raise SparkError(
                f"the jars folder {jars} holds no {artifact}-*.jar",
                hint=f"fill it with: python -m spark_jobs.spark.delta_jars {jars}",
            )
    return (("spark.jars", ",".join(str(jar.resolve()) for jar in sorted(folder.glob("*.jar")))),)


def fill_folder(folder: Path) -> bool:
    """Put Delta's jars, and those of their dependencies that Spark lacks, into ``folder``. Returns False if there was
    nothing to do.

    Spark's own resolver (Ivy) does the work, with the proxies and repositories that Java and Spark are set up for.
    """
    from spark_jobs.spark.java import find_java

    coordinate = delta_coordinate()
    done = folder / "delta-jars.txt"  # written last: marks the folder as complete, and for which coordinate
    if done.is_file() and done.read_text().split() == [coordinate, *sorted(p.name for p in folder.glob("*.jar"))]:
        return False
    java = find_java()
    with tempfile.TemporaryDirectory(prefix="delta-jars-") as scratch:
        resolved = resolve_packages(coordinate, Path(scratch), java.home)
        folder.mkdir(parents=True, exist_ok=True)
        done.unlink(missing_ok=True)
        for old in folder.glob("*.jar"):
            old.unlink()
        for jar in resolved:
            shutil.copy(jar, folder / jar.name)
    done.write_text("\n".join([coordinate, *sorted(p.name for p in folder.glob("*.jar"))]) + "\n")
    return True


def resolve_packages(coordinate: str, scratch: Path, java_home: Path) -> list[Path]:
    """Let spark-submit run an empty program with the package, and return the jars that it fetched."""
    program = scratch / "nothing.py"
    program.write_text("")
    command = [
        str(_spark_home() / "bin" / "spark-submit"),
        *("--master", "local[1]", "--packages", coordinate),
        *("--conf", f"spark.jars.ivy={scratch / 'ivy'}"),
        str(program),
    ]
    environ = {**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
    answer = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    jars = sorted((scratch / "ivy" / "jars").glob("*.jar"))
    if answer.returncode != 0 or not jars:
        reason = re.search(r"unresolved dependency[^\n]*|Server access error[^\n]*", answer.stdout + answer.stderr)
        raise SparkError(
            f"{coordinate} could not be resolved from Maven ({reason[0] if reason else 'spark-submit failed'})",
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


def _required_artifacts() -> tuple[str, ...]:
    return tuple(artifact.format(minor=_spark_minor()) for artifact in _REQUIRED)


def main(arguments: list[str]) -> int:
    """``python -m spark_jobs.spark.delta_jars FOLDER``: exit code 0 when the folder is filled."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m spark_jobs.spark.delta_jars FOLDER\n")
        return 2
    try:
        filled = fill_folder(Path(arguments[0]))
    except SparkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stderr.write(f"{delta_coordinate()}: {'fetched into' if filled else 'already in'} {arguments[0]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
