"""What one call prints, and in which form: the options that every command has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import click

Form = Literal["table", "json", "prometheus", "jsonl", "arrow"]
LEVELS = ("debug", "info", "warning", "error")
# how many lines about what is well are listed; the others are only counted
FEW = 20


def options_of(*forms: Form) -> tuple[click.Option, ...]:
    """``OutputChoice.of`` reads them before a command line is parsed, so that a mistake in it is reported in the
    requested form; a command declares them for ``--help`` and its parser."""
    meanings = f"The form of the result. Default: {forms[0]}."
    return (
        click.Option(["--output", "-o"], type=click.Choice(forms), expose_value=False, help=meanings),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            help="Short for --output json: one JSON document and nothing else.",
        ),
        click.Option(
            ["--verbose", "-v"],
            is_flag=True,
            expose_value=False,
            help=f"List also what is well, if it is more than {FEW} lines; show the trace of a failure.",
        ),
        click.Option(["--quiet", "-q"], is_flag=True, expose_value=False, help="Print problems only."),
        click.Option(
            ["--log-level"],
            type=click.Choice(LEVELS),
            expose_value=False,
            help="Log from this level on, with times, on stderr. Default: warning.",
        ),
    )


@dataclass(frozen=True)
class OutputChoice:
    """What one call prints: its result in this ``form``, everything or only problems, and how much of it."""

    form: Form = "table"
    verbose: bool = False
    quiet: bool = False
    log_level: str | None = None

    @classmethod
    def of(cls, arguments: Sequence[str]) -> OutputChoice:
        """Read from a command line that may be wrong otherwise."""
        lenient = click.Command(None, params=list(options_of(*get_args(Form))), add_help_option=False)
        context = click.Context(lenient, ignore_unknown_options=True, allow_extra_args=True, resilient_parsing=True)
        given, _, _ = lenient.make_parser(context).parse_args(list(arguments))
        output, level = given.get("output"), given.get("log_level")
        forms: dict[object, Form] = {form: form for form in get_args(Form)}
        return cls(
            form="json" if given.get("json") else forms.get(output, "table"),
            verbose=bool(given.get("verbose")),
            quiet=bool(given.get("quiet")),
            log_level=level if level in LEVELS else None,
        )

    @property
    def as_json(self) -> bool:
        return self.form == "json"

    def set_up_logging(self) -> None:
        """Only this product's own loggers: at a low level, those of drivers show rows and passwords. Without
        ``--log-level``, warnings are printed as they are."""
        if self.log_level is None:
            return
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        for package in ("spark_jobs", "cdc_assets"):
            logger = logging.getLogger(package)
            logger.addHandler(handler)
            logger.setLevel(self.log_level.upper())
