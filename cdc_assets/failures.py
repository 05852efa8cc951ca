"""The engine's errors as Dagster's failures, retried only if a second try may succeed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from spark_jobs.errors import CdcError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import MAY_PASS

# for what may pass; the sensor waits between runs on its own
RETRY_POLICY = dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL)
_RECOVER_COMMAND = re.compile(r"`postgres-cdc recover(?: --config FILE)?`")
_SNAPSHOT_COMMAND = re.compile(
    r"postgres-cdc snapshot --table ('(?:[^']|'\\'')+')"
)  # as ``new_snapshot`` quotes the name


@dataclass(frozen=True)
class Remedies:
    """What a pipeline has in Dagster in place of the engine's commands."""

    recover_job: str
    snapshots: Mapping[QualifiedName, dg.AssetKey]


def for_dagster(text: str, remedies: Remedies) -> str:
    """The engine's advice for someone who has Dagster's UI and no shell: the job, or the asset, in place of the
    command."""

    def snapshot(command: re.Match[str]) -> str:
        try:
            key = remedies.snapshots[QualifiedName.parse("".join(shlex.split(command[1])))]
        except (ValueError, KeyError):  # the text may be anybody's: an error must not fail because of its wording
            return command[0]
        return f"materialise the asset {key.to_user_string()}"

    text = _RECOVER_COMMAND.sub(lambda _: f"the job `{remedies.recover_job}`", text)
    return _SNAPSHOT_COMMAND.sub(snapshot, text)


def description_of(error: CdcError, remedies: Remedies) -> str:
    """For the page of an asset or a check, which reads Markdown: there a single line break would run the hint into the
    sentence before it."""
    return for_dagster(error.lines.replace("\n", "\n\n"), remedies)


def failure_of(errors: Sequence[CdcError], remedies: Remedies) -> dg.Failure:
    """The failure that shows one or more errors, with the hint on a line of its own; it is retried if one of them may
    pass."""
    text = for_dagster("\n".join(error.lines for error in errors), remedies)
    return dg.Failure(text, allow_retries=any(isinstance(error, MAY_PASS) for error in errors))


@contextmanager
def failures(remedies: Remedies) -> Iterator[None]:
    """Raise the engine's errors as Dagster's."""
    try:
        yield
    except CdcError as error:
        raise failure_of([error], remedies) from error
