"""What `replay` and `cut` refuse before anything is read: exit code 2, one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.cli.invocation import run

_RANGE = ["--from", "0/10", "--to", "0/20"]
_AS_OF = ["--at", "0/10", "--into", "/nowhere"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --from and --to, or --at and --into"),
        (["--from", "0/10"], "give --from and --to"),
        (["--from", "0/10", "--to", "now"], "not an LSN"),
        (_AS_OF, "one --table"),
        ([*_AS_OF, "--table", "a", "--table", "b"], "one --table"),
        ([*_AS_OF, "--table", "a", "--rebuild"], "nothing else"),
        ([*_AS_OF, "--table", "a", *_RANGE], "nothing else"),
        (["--at", "0/10", "--table", "a"], "goes with --into"),
        (["--at", "noon", "--into", "/nowhere", "--table", "a"], "neither an LSN nor a time"),
        ([*_RANGE, "--table", "a.b.c"], "not a table name"),
        (_RANGE, "no such file"),
    ],
)
def test_replay_refuses(options: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--config", str(tmp_path / "none.yaml"), *options]) == 2
    assert said in "".join(capfd.readouterr().err.splitlines(keepends=True)[:2])


def test_cut_refuses_what_is_no_point(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["cut", "--config", str(tmp_path / "none.yaml"), "--at", "2026-11-22T12:00:00"]) == 2
    assert "a time without its zone" in capfd.readouterr().err
