"""The Spark session as a Dagster resource: ours, or one that the user provides instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from spark_jobs.configuration import Pipeline, SparkOptions


class DeltaSparkResource(LazyPySparkResource):
    """A ``dagster-pyspark`` resource whose session has Delta Lake. The first step that needs the session starts it.

    Any resource with a ``spark_session`` attribute may replace it: name its key in ``spark.resource``.
    """

    # not fields: Dagster stores and shows a resource's fields, and the options hold tokens and keys of object stores
    _options: SparkOptions = PrivateAttr()
    _is_brief: Callable[[], bool] = PrivateAttr()

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    @classmethod
    def of(cls, options: SparkOptions, *, is_brief: Callable[[], bool] = lambda: False) -> DeltaSparkResource:
        """``is_brief`` is asked when the session is started: whether it has little to do, and ``end`` follows."""
        resource = cls(spark_config={})
        resource._options, resource._is_brief = options, is_brief
        return resource

    def _init_session(self) -> None:
        if self._spark_session is None:
            from spark_jobs.spark.session import spark_session

            self._spark_session = spark_session(self._options, brief=self._is_brief())

    def end(self) -> None:
        """End a session that was started as a brief one. Any other is left to the next run in this process."""
        if self._spark_session is not None:
            from spark_jobs.spark.own_jvm import end_session, is_brief

            if is_brief():
                end_session(self._spark_session)
                self._spark_session = None


def delta_spark_resource(pipeline: Pipeline, sync_job: str) -> dg.ResourceDefinition:
    """The definition, with the options in a closure: Dagster re-creates resources from their fields, without these.

    A run of ``sync_job`` that has little to do gets a brief session, as the command does.
    """

    def delta_spark(context: dg.InitResourceContext) -> Iterator[DeltaSparkResource]:
        from spark_jobs.apply.little_ahead import has_little_ahead

        is_sync = context.run is not None and context.run.job_name == sync_job
        little = partial(has_little_ahead, pipeline, captures=True)
        resource = DeltaSparkResource.of(pipeline.spark, is_brief=little if is_sync else lambda: False)
        try:
            yield resource
        finally:
            resource.end()

    return dg.ResourceDefinition(delta_spark, config_schema={}, description=DeltaSparkResource.__doc__)
