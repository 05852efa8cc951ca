"""What the campaign tells a client to do, once."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

# compare: sync until nothing is left to do, then say how the lake differs from the source, which is at rest
Verb = Literal["prepare", "capture", "sync", "snapshot", "compare"]


@dataclass(frozen=True)
class Order:
    """``run``: the id of the run, in commits and errors. ``names``: what a snapshot or a comparison is of."""

    verb: Verb
    run: str
    pipeline: Pipeline
    database: Database
    names: tuple[QualifiedName, ...] = ()

    def written(self, folder: Path) -> Path:
        """As a file, whose name is what a client is told."""
        file = folder / f"{self.run}-{self.verb}.order"
        file.write_bytes(pickle.dumps(self))
        return file

    @classmethod
    def read(cls, file: Path) -> Order:
        order = pickle.loads(file.read_bytes())  # noqa: S301 - our own file
        assert isinstance(order, cls)
        return order
