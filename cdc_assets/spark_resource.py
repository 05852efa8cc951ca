"""The Spark session as a Dagster resource: ours, or one that the user provides instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from spark_jobs.configuration import Pipeline, SparkOptions
from spark_jobs.spark.provider import LazySession, SparkProvider, one_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaSparkResource(LazyPySparkResource):
    """A ``dagster-pyspark`` resource whose session has Delta Lake. The first step that needs the session starts it.

    Any resource with a ``spark_session`` attribute may replace it: name its key in ``spark.resource``.
    """

    # not fields: Dagster stores and shows a resource's fields, and the options hold tokens and keys of object stores
    _options: SparkOptions = PrivateAttr()
    _is_brief: bool = PrivateAttr(default=False)
    _provider: SparkProvider = PrivateAttr()

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    @classmethod
    def of(cls, options: SparkOptions, *, may_be_brief: bool = False) -> DeltaSparkResource:
        """``may_be_brief``: if the session turns out to have little to do, it is a brief one, which ``end`` ends."""
        resource = cls(spark_config={})
        resource._options = options
        untold = one_at_a_time(lambda: resource.spark_session)
        resource._provider = LazySession(resource._started) if may_be_brief else untold
        return resource

    @property
    def provider(self) -> SparkProvider:
        """Gives ``spark_session``; it may be told how much is ahead of it."""
        return self._provider

    def _started(self, has_little: bool) -> SparkSession:
        self._is_brief = has_little
        session: SparkSession = self.spark_session
        return session

    def _init_session(self) -> None:
        if self._spark_session is None:
            from spark_jobs.spark.session import spark_session

            self._spark_session = spark_session(self._options, brief=self._is_brief)

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
        is_sync = context.run is not None and context.run.job_name == sync_job
        resource = DeltaSparkResource.of(pipeline.spark, may_be_brief=is_sync)
        try:
            yield resource
        finally:
            resource.end()

    return dg.ResourceDefinition(delta_spark, config_schema={}, description=DeltaSparkResource.__doc__)
