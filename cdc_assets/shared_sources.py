"""Source tables that several pipelines of one code location follow: one of the pipelines declares their assets.

Dagster refuses two declarations of one key, unless they are equal, and those from two files never are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import dagster as dg

from cdc_assets.configuration.database_name import database_name, server_name
from cdc_assets.configuration.models import PipelineModel

Model = TypeVar("Model", bound=PipelineModel)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeclaredElsewhere:
    """The source tables whose assets other pipelines declare; ``unknown``: they may be any."""

    keys: frozenset[dg.AssetKey] = frozenset()
    unknown: bool = False

    def __contains__(self, key: dg.AssetKey) -> bool:
        return self.unknown or key in self.keys


NOTHING_ELSEWHERE = DeclaredElsewhere()


def source_prefix(model: PipelineModel) -> tuple[str, ...]:
    """What the keys of the pipeline's source tables begin with."""
    return tuple(model.source.key_prefix or ("postgres", database_name(model.source.dsn)))


def declared_elsewhere(
    this: Model, all_of_them: Sequence[Model], source_keys: Callable[[Model], Iterable[dg.AssetKey]]
) -> DeclaredElsewhere:
    """The source tables that a pipeline before ``this`` declares. Pipelines that list their tables are before all
    others. What those others publish is unknown here, so if several replicate one database, only the first declares
    source tables; tables that only the rest replicate are assets without description. ``source_keys``: those of the
    listed tables, after translation."""
    ordered = sorted(all_of_them, key=lambda each: each.tables is None)
    before = ordered[: next((place for place, each in enumerate(ordered) if each is this), 0)]
    own = source_prefix(this)
    sharing = [each for each in before if source_prefix(each) == own]
    for other in sharing:
        if server_name(other.source.dsn) != server_name(this.source.dsn):
            _log.warning(
                "pipelines %s and %s have the same source assets, %s/..., and source.dsn of each names another server:"
                " if their databases differ, give one of them a source.key_prefix",
                *(other.name, this.name, "/".join(own)),
            )
    return DeclaredElsewhere(
        frozenset(key for each in before for key in source_keys(each)),
        unknown=any(each.tables is None for each in sharing),
    )
