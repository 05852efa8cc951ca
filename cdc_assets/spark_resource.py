"""The Spark session as a Dagster resource: ours, or one that the user provides instead."""

from __future__ import annotations

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from spark_jobs.configuration import SparkOptions


class DeltaSparkResource(LazyPySparkResource):
    """A ``dagster-pyspark`` resource whose session has Delta Lake. The first step that needs the session starts it.

    Any resource with a ``spark_session`` attribute may replace it: name its key in ``spark.resource``.
    """

    # not a field: Dagster stores and shows a resource's fields, and the options hold tokens and keys of object stores
    _options: SparkOptions = PrivateAttr()

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    @classmethod
    def of(cls, options: SparkOptions) -> DeltaSparkResource:
        resource = cls(spark_config={})
        resource._options = options
        return resource

    def _init_session(self) -> None:
        if self._spark_session is None:
            from spark_jobs.spark.session import spark_session

            self._spark_session = spark_session(self._options)


def delta_spark_resource(options: SparkOptions) -> dg.ResourceDefinition:
    """The definition, with the options in a closure: Dagster re-creates resources from their fields, without these."""

    def delta_spark(_: dg.InitResourceContext) -> DeltaSparkResource:
        return DeltaSparkResource.of(options)

    return dg.ResourceDefinition(delta_spark, config_schema={}, description=DeltaSparkResource.__doc__)
