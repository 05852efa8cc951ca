"""Every recording, through every decoder: each must give the changes that the theme's triggers noted."""

from __future__ import annotations

import pytest

from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.messages import BinaryValue, Insert
from spark_jobs.logicalrep.test_decoding.lines import StreamLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from tests.fixtures.server_binaries import VERSIONS
from tests.golden.golden_file import Recording, expected, recordings
from tests.golden.observed import as_text, assert_agrees
from tests.golden.read_columns import line_rows, observe_columns, observe_line_columns
from tests.golden.read_recordings import observe_pgoutput, observe_test_decoding
from tests.golden.scenario import Scenario, themes

ALL = recordings()
TEXT_PGOUTPUT = [each for each in ALL if each.plugin == "pgoutput" and each.option("binary") is None]
BINARY_PGOUTPUT = [each for each in ALL if each.option("binary")]
STREAM_LINES = [each for each in ALL if each.option("stream-changes")]
LINES = [each for each in ALL if each.plugin == "test_decoding" and not each.option("stream-changes")]
# as capture reads the plugin: never as two-phase, always with the xid and the time
CAPTURED_LINES = [each for each in LINES if not each.two_phase_slot and each.option("include-timestamp")]


def named(recording: Recording) -> str:
    return recording.name


def test_every_read_of_every_theme_is_recorded_on_every_version() -> None:
    recorded = {(each.theme, each.plugin, each.two_phase_slot, each.options, v) for each in ALL for v in each.versions}
    wanted = {
        (theme, read.plugin, read.two_phase_slot, read.options, version)
        for theme in themes()
        for read in Scenario.of(theme).reads
        for version in VERSIONS
        if version >= read.since
    }
    assert recorded == wanted


@pytest.mark.parametrize("recording", TEXT_PGOUTPUT, ids=named)
def test_pgoutput_object_by_object(recording: Recording) -> None:
    assert_agrees(recording, observe_pgoutput(recording), expected(recording.theme, recording.versions[0]))


@pytest.mark.parametrize("recording", LINES, ids=named)
def test_test_decoding_line_by_line(recording: Recording) -> None:
    changes = expected(recording.theme, recording.versions[0])
    assert_agrees(recording, observe_test_decoding(recording, changes), changes)


@pytest.mark.parametrize("batch_size", [1, 3, 10_000])
@pytest.mark.parametrize("recording", TEXT_PGOUTPUT, ids=named)
def test_pgoutput_in_columns(recording: Recording, batch_size: int) -> None:
    observed = observe_columns(recording, batch_size)
    assert_agrees(recording, observed, expected(recording.theme, recording.versions[0]))
    assert observed == observe_pgoutput(recording)


@pytest.mark.parametrize("batch_size", [1, 3, 10_000])
@pytest.mark.parametrize("recording", CAPTURED_LINES, ids=named)
def test_test_decoding_in_columns(recording: Recording, batch_size: int) -> None:
    changes = expected(recording.theme, recording.versions[0])
    assert_agrees(recording, observe_line_columns(recording, changes, batch_size), changes)


@pytest.mark.parametrize("recording", STREAM_LINES, ids=named)
def test_streamed_lines_are_read_one_by_one_and_refused_as_a_window(recording: Recording) -> None:
    """``stream-changes`` never prints the changes: each line is understood, the window is not taken for whole."""
    lines = [read_line(row.data) for row in recording.rows]
    assert any(isinstance(line, StreamLine) for line in lines)
    with pytest.raises(DecodeError):
        line_rows(recording, expected(recording.theme, recording.versions[0]), 10_000)


@pytest.mark.parametrize("in_columns", [False, True], ids=["objects", "columns"])
@pytest.mark.parametrize("recording", BINARY_PGOUTPUT, ids=named)
def test_binary_values_mean_what_their_text_means(recording: Recording, in_columns: bool) -> None:
    observed = observe_columns(recording, 10_000) if in_columns else observe_pgoutput(recording)
    values = [value for each in observed if isinstance(each.change, Insert) for value in each.change.new]
    assert sum(isinstance(value, BinaryValue) for value in values) > 100
    assert_agrees(
        recording,
        [as_text(each, recording.versions[0]) for each in observed],
        expected(recording.theme, recording.versions[0]),
    )
