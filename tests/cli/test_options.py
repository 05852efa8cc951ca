"""The options that every command has, where the configuration is found, and which old spellings still work."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cdc_assets.cli.commands import SUMMARIES, postgres_cdc
from cdc_assets.cli.invocation import run
from cdc_assets.cli.old_spellings import current_spelling
from cdc_assets.cli.output_choice import OutputChoice

_FILE: dict[str, Any] = {
    "type": "cdc_assets.PostgresCdcComponent",
    "attributes": {
        "name": "shop",
        "source": {"dsn": "host=nowhere password=hunter2"},
        "lake": {"path": "lake"},
        "tables": ["public.orders"],
        "spark": {"config": {"spark.hadoop.fs.s3a.secret.key": "hunter3"}},
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the configuration under its default name."""
    (tmp_path / "postgres-cdc.yaml").write_text(yaml.safe_dump(_FILE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTGRES_CDC_CONFIG", raising=False)
    return tmp_path


def _commands() -> dict[str, click.Command]:
    found = {name: postgres_cdc.get_command(click.Context(postgres_cdc), name) for name in SUMMARIES}
    commands = {name: command for name, command in found.items() if command is not None}
    groups = {name: command for name, command in commands.items() if isinstance(command, click.Group)}
    inner = {f"{name} {each}": command for name, group in groups.items() for each, command in group.commands.items()}
    return {name: command for name, command in (commands | inner).items() if name not in groups}


@pytest.mark.parametrize(("name", "command"), _commands().items(), ids=_commands())
def test_every_command_has_the_same_options(name: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--output", "-o", "--json", "--verbose", "-v", "--quiet", "-q", "--log-level"} <= options
    assert ("--config" in options) == (name not in ("demo", "init"))
    assert not options & {"--debug", "--upto", "--as-of", "--format"}
    assert all(p.help or p.hidden for p in command.params if isinstance(p, click.Option))


def test_the_configuration_is_found_by_its_name(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "validate"]) == 0
    assert capfd.readouterr().out == "postgres-cdc.yaml is valid: pipeline shop with 1 table\n"
    (folder / "postgres-cdc.yaml").rename("other.yaml")
    assert run(["config", "validate"]) == 2
    missing = (
        "postgres-cdc: postgres-cdc.yaml: no such file\nhint: name it with --config FILE; `postgres-cdc init` writes"
    )
    assert capfd.readouterr().err.startswith(missing)


def test_the_variable_comes_before_the_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_CDC_CONFIG", "none.yaml")
    assert run(["config", "validate"]) == 2
    assert run(["config", "validate", "-c", "postgres-cdc.yaml"]) == 0


def test_the_file_is_shown_with_its_defaults_and_without_secrets(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "show"]) == 0
    shown = capfd.readouterr().out
    assert "hunter" not in shown
    attributes = yaml.safe_load(shown)["attributes"]
    assert attributes["source"]["slot"] == attributes["source"]["publication"] == "shop"
    assert attributes["merge"] == {"engine": "spark"}
    assert run(["config", "show", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out) == yaml.safe_load(shown)


def test_what_is_shown_is_a_file_that_means_the_same(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = copy.deepcopy(_FILE)
    document["attributes"] |= {
        "windows": {"max_bytes": "64MiB"},
        "snapshot": {"rate_limit": "50MiB"},
        "retention": {"change_log": "90d"},
        "health": {"lag_bytes": {"warn": "3GiB"}, "lag_seconds": {"warn": "15m"}},
        "on_unrepresentable": "null",
        "tables": [
            {"name": "public.orders", "types": {"amount": "decimal(38,10)"}, "on_schema_change": {"add": "stop"}}
        ],
        "automation": {"sensor": "90s"},
        "time_partitions": {"daily": {"timezone": "Europe/Berlin", "start": "2026-11-01"}},
        "op": {"retry_policy": {"max_retries": 5, "delay": "30s"}},
        "spark": {},
    }
    (folder / "postgres-cdc.yaml").write_text(yaml.safe_dump(document))
    assert run(["config", "show"]) == 0
    shown = capfd.readouterr().out
    for written in ("64MiB", "50MiB", "90d", "3GiB", "15m", "90s"):
        assert f" {written}\n" in shown
    (folder / "shown.yaml").write_text(shown.replace("'**********'", "host=nowhere password=hunter2"))
    assert "retry_policy" not in shown, "only Dagster reads it"
    assert run(["config", "show", "--config", "shown.yaml"]) == 0
    assert capfd.readouterr().out == shown


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://cdc:of@hunter2@localhost:1/shop",
        "postgresql://cdc:5/hunter2@localhost:1/shop",
        "postgres://cdc:of@hunter2/x@localhost:1/shop",
        "postgresql://cdc:of%hunter2@localhost:1/shop",
        "hots=localhost password=hunter2",
        "localhost:1/hunter2",
    ],
)
def test_a_connection_string_that_libpq_reads_otherwise_is_refused_unseen(
    folder: Path, capfd: pytest.CaptureFixture[str], dsn: str
) -> None:
    document = copy.deepcopy(_FILE)
    document["attributes"]["source"]["dsn"] = dsn
    (folder / "postgres-cdc.yaml").write_text(yaml.safe_dump(document))
    for command, file in (["config", "validate"], "postgres-cdc.yaml: "), (["status"], ""), (["sync"], ""):
        assert run(command) == 2
        said = capfd.readouterr().err
        assert said.startswith(f"postgres-cdc: {file}source.dsn is not a PostgreSQL connection string\nhint: expected ")
        assert "hunter2" not in said


def test_a_connection_string_with_signs_elsewhere_is_accepted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = copy.deepcopy(_FILE)
    for dsn in (
        "postgresql://cdc:of%40hunter2@localhost:1/shop",
        "postgresql://cdc@localhost/shop?application_name=a@b",
        "postgresql:///shop?host=/tmp&user=cdc@shop",
        "postgresql://cdc:p?:#w@[::1]:1,localhost:2/shop",
        "host=localhost user=cdc@shop password=a@b/c%d",
    ):
        document["attributes"]["source"]["dsn"] = dsn
        (folder / "postgres-cdc.yaml").write_text(yaml.safe_dump(document))
        assert run(["config", "validate"]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("asked", [["--json"], ["-o", "json"], ["--output=json"], ["-vo", "json"]])
def test_a_mistake_is_told_in_the_form_that_was_asked_for(asked: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["status", *asked, "--nonsense"]) == 2
    assert "--nonsense" in json.loads(capfd.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("refused", [["-o", "yaml"], ["--output", "prometheus"], ["--log-level", "loud"]])
def test_other_values_are_refused(refused: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["sync", *refused]) == 2
    assert refused[1] in capfd.readouterr().err


def test_quiet_prints_problems_only(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "validate", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    assert run(["config", "validate", "--quiet", "-c", "none.yaml"]) == 2
    assert "no such file" in capfd.readouterr().err


def test_the_log_level_is_that_of_this_product_alone() -> None:
    ours, root = logging.getLogger("spark_jobs"), logging.getLogger()
    before = ours.level, root.level, list(ours.handlers)
    try:
        OutputChoice.of(["sync", "--log-level", "debug"]).set_up_logging()
        assert ours.isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("py4j").isEnabledFor(logging.DEBUG)
        assert root.level == before[1]
    finally:
        for logger in (ours, logging.getLogger("cdc_assets")):
            logger.setLevel(logging.NOTSET)
            logger.handlers = []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["capture", "--upto", "0/10"], ["capture", "--to", "0/10"]),
        (["apply", "--upto=0/10"], ["apply", "--to=0/10"]),
        (["replay", "--as-of", "0/10"], ["replay", "--at", "0/10"]),
        (["status", "--format", "prometheus"], ["status", "--output", "prometheus"]),
        (["sync", "--debug"], ["sync", "--verbose"]),
        (["doctor", "--all"], ["doctor", "--verbose"]),
        (["demo", "--keep-server"], ["demo", "--keep"]),
    ],
)
def test_old_spellings_go_on(old: list[str], new: list[str]) -> None:
    current, warnings = current_spelling(old)
    assert current == new
    (warning,) = warnings
    assert warning.startswith(f"{old[1].partition('=')[0]} is called {new[1].partition('=')[0]} now")
    assert current_spelling(new) == (new, [])
    assert current_spelling(["snapshot", "--all"]) == (["snapshot", "--all"], [])


def test_an_old_spelling_is_told_to_a_person(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["capture", "--upto", "yesterday"]) == 2
    assert "is called" not in capfd.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    assert run(["capture", "--upto", "yesterday"]) == 2
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert first == "postgres-cdc: --upto is called --to now; the old spelling will be removed in version 0.3"
    assert "not an LSN" in second


@pytest.mark.parametrize("name", ["snapshot", "apply"])
def test_tables_may_still_be_arguments(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    assert run([name, "public.nothing", "-c", "none.yaml"]) == 2
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert (
        first == "postgres-cdc: write --table before each table's name; the old spelling will be removed in version 0.3"
    )
    assert "none.yaml: no such file" in second


def test_a_pattern_without_a_match_is_refused_before_anything_is_done(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("snapshot", "apply", "verify"):
        assert run([name, "--table", "audit.*"]) == 2
        assert "no table matches audit.*" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["postgres-cdc.yaml"]


@pytest.mark.parametrize(("words", "completed"), [("sy", "sync"), ("sync --dry", "--dry-run"), ("config sh", "show")])
def test_a_shell_completes_it(
    words: str, completed: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_POSTGRES_CDC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"postgres-cdc {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        run([])
    assert capfd.readouterr().out == f"plain,{completed}\n"


def test_snapshot_takes_tables_or_all(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--all", "--table", "public.orders"]) == 2
    assert "exclude each other" in capfd.readouterr().err
