"""One call of the command line: stdout is reserved for the result, every failure is one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TypeAlias

import click

from cdc_assets.cli.commands import postgres_cdc
from cdc_assets.cli.json_output import error_document, json_text
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import Terminal
from spark_jobs.errors import CdcError, one_line

USAGE = 2
INTERRUPTED = 130

Said: TypeAlias = tuple[str, str]  # what happened, and the hint


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    as_json = "--json" in arguments
    terminal = Terminal(as_json=as_json)
    if not arguments:
        run(["--help"])
        return USAGE
    try:
        with _stdout_for_help_only(arguments, terminal):
            outcome = postgres_cdc.main(list(arguments), prog_name="postgres-cdc", standalone_mode=False, obj=terminal)
    except CdcError as error:
        _trace(arguments)
        return _failed(terminal, error, as_json, (error.what, error.hint), error.exit_code)
    except click.ClickException as error:
        return _failed(terminal, error, as_json, _usage(error), USAGE)
    except (click.Abort, KeyboardInterrupt):
        terminal.problem("interrupted", "run it again to go on from where it stopped")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: reported with a non-zero exit code
        _trace(arguments)
        return _failed(terminal, error, as_json, _unexpected(error), 1)
    return _finished(terminal, outcome, as_json)


def _trace(arguments: Sequence[str]) -> None:
    if "--debug" in arguments:
        traceback.print_exc()


def _finished(terminal: Terminal, outcome: object, as_json: bool) -> int:
    if not isinstance(outcome, Outcome):  # --help and --version have printed their output
        return outcome if isinstance(outcome, int) else 0
    for problem in outcome.problems:
        terminal.problem(problem.what, problem.hint)
    try:
        if outcome.report is None:  # the command has printed its lines
            pass
        elif as_json:
            sys.stdout.write(json_text(outcome.report) + "\n")
        elif isinstance(outcome.display, str):
            sys.stdout.write(outcome.display)
        else:
            terminal.show(outcome.display)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, say) has closed the pipe; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return outcome.exit_code


def _failed(terminal: Terminal, error: Exception, as_json: bool, said: Said, exit_code: int) -> int:
    terminal.problem(*said)
    if as_json:
        sys.stdout.write(json_text(error_document(error, *said)) + "\n")
        sys.stdout.flush()
    return exit_code


def _usage(error: click.ClickException) -> Said:
    what = one_line(error.format_message()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return what, f"{context.command_path} --help" if context is not None else ""


def _unexpected(error: Exception) -> Said:
    """The type and the place, but not the message: a library's message may hold a row's values or a password."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}: this is a defect", "run it again with --debug to see where"


@contextmanager
def _stdout_for_help_only(arguments: Sequence[str], terminal: Terminal) -> Iterator[None]:
    """Whatever the work prints, including the JVM's stdout, goes to stderr; --help, --version and the terminal's lines
    do not."""
    if not {"-h", "--help", "--version"}.isdisjoint(arguments):
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr), os.fdopen(os.dup(kept), "w") as terminal.stdout:
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
