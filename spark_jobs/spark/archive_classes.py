"""``python -m spark_jobs.spark.archive_classes`` makes the archive of Spark's classes at once, say for the image of a
container. Else the second command that could use it makes it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from spark_jobs.configuration import SparkOptions
from spark_jobs.readable_size import size
from spark_jobs.spark.class_archive import class_archive
from spark_jobs.spark.driver_jars import class_path
from spark_jobs.spark.java import find_java
from spark_jobs.spark.own_jvm import end_session
from spark_jobs.spark.session import spark_session

# nobody waits for a table meanwhile
_AT_LEISURE_SECONDS = 600


def main() -> None:
    """The JVM writes the file when it ends; a runtime without an archive of Java's own classes writes none."""
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.spark.archive_classes", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="by default in the cache, where commands look for it")
    parser.add_argument("--jars", default="packages", help="Delta's jars: packages, provided or a folder")
    arguments = parser.parse_args()
    os.environ.pop("JDK_JAVA_OPTIONS", None)  # may name the file as one to be used
    options = SparkOptions(master="local[2]", jars=arguments.jars)
    with tempfile.TemporaryDirectory() as elsewhere:
        if arguments.file is not None:
            os.environ["XDG_CACHE_HOME"] = elsewhere
        made = _made(options)
        file_size = size(made.stat().st_size) if made else "this Java archives none"
        if made and arguments.file is not None:
            shutil.copyfile(made, arguments.file)
    sys.stdout.write(f"classes of Spark: {file_size}\n")


def _made(options: SparkOptions) -> Path | None:
    """Record the classes that a session and a small MERGE need."""
    if options.jars == "packages" and not class_path(options):  # Ivy has to find them first
        end_session(spark_session(options, brief=True))
    archive = class_archive(find_java().home, class_path(options), "")
    if archive is None:
        sys.exit("there is no folder for it that only this user can write: set XDG_CACHE_HOME")
    archive.make_due()
    spark = spark_session(options, brief=True)
    with tempfile.TemporaryDirectory() as folder:
        spark.range(10).write.format("delta").save(f"{folder}/table")
        spark.createDataFrame(pa.table({"id": [3]})).createOrReplaceTempView("changes")
        target = f"delta.`{folder}/table` AS t"
        spark.sql(f"MERGE INTO {target} USING changes AS s ON t.id = s.id WHEN MATCHED THEN DELETE")
        end_session(spark, archive_seconds=_AT_LEISURE_SECONDS)
    return archive.file if archive.exists else None


if __name__ == "__main__":
    main()
