"""The Spark session as a Dagster resource: ours, or one that the user puts in its place."""

from __future__ import annotations

from typing import Any

from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from spark_jobs.configuration import SparkOptions


class DeltaSparkResource(LazyPySparkResource):
    """A ``dagster-pyspark`` resource whose session has Delta Lake; started by the first step that asks for it.

    Any resource with a ``spark_session`` attribute may stand in its place: name its key in ``spark.resource``.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="further Spark settings")
    master: str | None = Field(default=None, description="a classic master")
    remote: str | None = Field(default=None, description="a Spark Connect URL")
    jars: str = Field(default="packages", description="packages, provided, or a folder of jar files")

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    @classmethod
    def of(cls, options: SparkOptions) -> DeltaSparkResource:
        return cls(spark_config=dict(options.config), master=options.master, remote=options.remote, jars=options.jars)

    def _init_session(self) -> None:
        if self._spark_session is None:
            from spark_jobs.spark.session import spark_session

            config = tuple((str(key), str(value)) for key, value in self.spark_config.items())
            self._spark_session = spark_session(
                SparkOptions(master=self.master, remote=self.remote, jars=self.jars, config=config)
            )
