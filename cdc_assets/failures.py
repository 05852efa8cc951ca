"""The engine's errors as Dagster's failures, retried only if a second try may succeed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from cdc_assets.asset_keys import snapshot_key
from spark_jobs.errors import CdcError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import MAY_PASS

# for what may pass; the sensor waits between runs on its own
RETRY_POLICY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)
_RECOVER_COMMAND = re.compile(r"`postgres-cdc recover(?: --config FILE)?`")
_SNAPSHOT_COMMAND = re.compile(
    r"postgres-cdc snapshot --table ('(?:[^']|'\\'')+')"
)  # as ``new_snapshot`` quotes the name


def recover_job_name(pipeline_name: str) -> str:
    return f"{pipeline_name}_recover"


def for_dagster(text: str, pipeline_name: str) -> str:
    """The engine's advice for someone who has Dagster's UI and no shell: the job, or the asset, in place of the
    command."""

    def snapshot(command: re.Match[str]) -> str:
        try:
            table = QualifiedName.parse("".join(shlex.split(command[1])))
        except ValueError:  # somebody else's text: an error must not fail for how it is told
            return command[0]
        return f"materialise the asset {snapshot_key(pipeline_name, table).to_user_string()}"

    text = _RECOVER_COMMAND.sub(lambda _: f"the job `{recover_job_name(pipeline_name)}`", text)
    return _SNAPSHOT_COMMAND.sub(snapshot, text)


def description_of(error: CdcError, pipeline_name: str) -> str:
    """For the page of an asset or a check, which reads Markdown: there a single line break would run the hint into the
    sentence before it."""
    return for_dagster(error.lines.replace("\n", "\n\n"), pipeline_name)


def failure_of(errors: Sequence[CdcError], pipeline_name: str) -> dg.Failure:
    """The failure that shows one or more errors, with the hint on a line of its own; it is retried if one of them may
    pass."""
    text = for_dagster("\n".join(error.lines for error in errors), pipeline_name)
    return dg.Failure(text, allow_retries=any(isinstance(error, MAY_PASS) for error in errors))


@contextmanager
def failures(pipeline_name: str) -> Iterator[None]:
    """Raise the engine's errors as Dagster's."""
    try:
        yield
    except CdcError as error:
        raise failure_of([error], pipeline_name) from error
