"""One call of the command line: stdout is reserved for the result, every failure is one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click

from cdc_assets.cli.commands import postgres_cdc
from cdc_assets.cli.json_output import error_document, json_text
from cdc_assets.cli.old_spellings import current_spelling
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.output_choice import OutputChoice
from cdc_assets.cli.pasted_hint import with_pasted_hints
from cdc_assets.cli.terminal import Terminal
from spark_jobs.errors import CdcError, one_line

USAGE = 2
INTERRUPTED = 130

Said: TypeAlias = tuple[str, str]  # what happened, and the hint


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    if not arguments:
        run(["--help"])
        return USAGE
    current, renamed = current_spelling(arguments)
    terminal = Terminal(OutputChoice.of(current))
    terminal.choice.set_up_logging()
    for note in renamed:
        terminal.deprecated(note)
    try:
        with _stdout_for_help_only(current, terminal):
            outcome = postgres_cdc.main(current, prog_name="postgres-cdc", standalone_mode=False, obj=terminal)
    except CdcError as error:
        _trace(terminal)
        return _failed(terminal, error, (error.what, error.hint), error.exit_code)
    except click.ClickException as error:
        return _failed(terminal, error, _usage(error), USAGE)
    except (click.Abort, KeyboardInterrupt):
        terminal.problem("interrupted", "run it again to continue from where it stopped")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: reported with a non-zero exit code
        _trace(terminal)
        return _failed(terminal, error, _unexpected(error), 1)
    return _finished(terminal, outcome)


def _trace(terminal: Terminal) -> None:
    if terminal.choice.verbose:
        traceback.print_exc()


def _finished(terminal: Terminal, outcome: object) -> int:
    if not isinstance(outcome, Outcome):  # --help and --version have printed their output
        return outcome if isinstance(outcome, int) else 0
    for problem in outcome.problems:
        terminal.problem(problem.what, problem.hint)
    try:
        if outcome.report is None:  # the command has printed its lines
            pass
        elif terminal.choice.as_json:
            sys.stdout.write(json_text(outcome.report, _with_hints_of(terminal)) + "\n")
        elif isinstance(outcome.display, str):
            sys.stdout.write(outcome.display)
        elif terminal.choice.quiet:
            pass
        else:
            terminal.show(outcome.display)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, say) has closed the pipe; Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return outcome.exit_code


def _failed(terminal: Terminal, error: Exception, message: Said, exit_code: int) -> int:
    terminal.problem(*message)
    if terminal.choice.as_json:
        sys.stdout.write(json_text(error_document(error, *message), _with_hints_of(terminal)) + "\n")
        sys.stdout.flush()
    return exit_code


def _with_hints_of(terminal: Terminal) -> Callable[[object], object]:
    return partial(with_pasted_hints, configuration=terminal.configuration)


def _usage(error: click.ClickException) -> Said:
    what = one_line(error.format_message()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return what, f"{context.command_path} --help" if context is not None else ""


def _unexpected(error: Exception) -> Said:
    """The type and the place, but not the message: a library's message may hold a row's values or a password."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}: this is a defect", "run it again with --verbose to see where"


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
