"""The cells of the matrix: every way to read a slot, and which of them a server refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import pytest

from spark_jobs.configuration import Source
from tests.fixtures.server_binaries import VERSIONS

Streaming = Literal["off", "on", "parallel"]
Plugin = Literal["pgoutput", "test_decoding"]


@dataclass(frozen=True)
class Cell:
    """One combination of options."""

    plugin: Plugin = "pgoutput"
    streaming: Streaming = "off"
    two_phase: bool = False
    binary: bool = False

    @property
    def name(self) -> str:
        words = [self.plugin, f"streaming_{self.streaming}"]
        return "-".join(words + ["two_phase"] * self.two_phase + ["binary"] * self.binary)

    def of(self, source: Source) -> Source:
        return replace(
            source, plugin=self.plugin, streaming=self.streaming, two_phase=self.two_phase, binary=self.binary
        )

    def refused(self, version: int) -> str | None:
        """What the refusal names; None where the server and the plugin can do it."""
        if self.plugin == "test_decoding":
            if self.streaming != "off":
                return f"source.streaming: {self.streaming}"
            return "source.binary: true" if self.binary else None
        if self.streaming == "parallel" and version < 16:
            return "source.streaming: parallel needs PostgreSQL 16"
        if self.two_phase and version < 15:
            return "source.two_phase: true needs PostgreSQL 15"
        return None

    @property
    def same_log_as(self) -> Cell:
        """The plainest cell whose log must have the very same rows: of its values' form."""
        return Cell(plugin=self.plugin, binary=self.binary)


def every_cell() -> Iterator[Cell]:
    plugins: tuple[Plugin, ...] = ("pgoutput", "test_decoding")
    streaming: tuple[Streaming, ...] = ("off", "on", "parallel")
    for plugin, binary, two_phase, stream in product(plugins, (False, True), (False, True), streaming):
        yield Cell(plugin, stream, two_phase, binary)


def in_cells(
    by_day: Callable[[int, Cell], bool], kept: Callable[[Cell], bool] = lambda _: True
) -> pytest.MarkDecorator:
    """A test in all cells of all servers, the plainest of each kind of log first. ``by_day``: in ``make test`` too."""
    return pytest.mark.parametrize(
        ("version", "cell"),
        [
            pytest.param(
                version, cell, id=f"{version}-{cell.name}", marks=() if by_day(version, cell) else pytest.mark.nightly
            )
            for version, cell in product(VERSIONS, every_cell())
            if kept(cell) and cell.refused(version) is None
        ],
    )
