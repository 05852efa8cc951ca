"""A stream of changes into a Delta table, as a program that a test kills.

``python -m tests.logged_changes.streaming OPTIONS LAKE TABLE SINK CHECKPOINT [once]``: with pickled SparkOptions; it
reads on until it is killed, or only what is there.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from cdc_assets import ChangesSource
from spark_jobs.spark.session import spark_session


def main(options: str, lake: str, table: str, sink: str, checkpoint: str, once: str = "") -> None:
    spark = spark_session(pickle.loads(Path(options).read_bytes()))  # noqa: S301 - our own file
    spark.dataSource.register(ChangesSource)
    stream = spark.readStream.format("postgres_cdc").options(path=lake, table=table).load()
    writer = stream.writeStream.format("delta").option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    query = writer.start(sink)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
