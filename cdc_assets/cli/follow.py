"""``postgres-cdc follow``: sync all day, under a supervisor such as systemd or a container."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import FrameType

import click

from cdc_assets.cli.follow_monitor import FollowMonitor
from cdc_assets.cli.fresh_status import FreshStatus
from cdc_assets.cli.json_output import json_value
from cdc_assets.cli.listener import ListenAddress, listening
from cdc_assets.cli.options import config_option, output_options, read_by, read_seconds
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.pasted_hint import pasted_hint, with_pasted_hints
from cdc_assets.cli.spark import renewable_session
from cdc_assets.cli.terminal import Terminal, counted
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.follow import Follower, FollowRound
from spark_jobs.readable_size import size
from spark_jobs.status import pipeline_status

# how often scrapes may query the source, however short --every is
_LEAST_SECONDS_BETWEEN_STATUSES = 5.0


def _writable(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and not os.access(value.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{value.parent} is not a folder that can be written", ctx, param)
    return value


@click.command("follow")
@config_option
@click.option(
    "--every", default="5s", callback=read_seconds, metavar="TIME", help="How often tables are written: 500ms, 5s, 2m."
)
@click.option(
    "--health-file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_writable,
    metavar="FILE",
    help="Written after each round with what it did, as JSON: a supervisor looks at its age.",
)
@click.option(
    "--listen",
    callback=read_by(ListenAddress.parse),
    metavar="ADDRESS",
    help="Serve /metrics and /healthz by HTTP here, such as 127.0.0.1:9464. Without it nothing listens.",
)
@output_options
@click.pass_obj
def command(
    terminal: Terminal, config: Path, every: float, health_file: Path | None, listen: ListenAddress | None
) -> Outcome:
    """Sync all day in one process, with one Spark session that stays warm.

    Once per --every, what has changed is captured, then applied. A table that stops
    is tried again, after 5 seconds, then 10, up to 5 minutes. After SIGTERM or Ctrl-C what is captured is applied in
    a last round, which says how much is not captured; the exit code is 0. With --json it prints one line per round,
    otherwise one for each round that did something.
    """
    pipeline = load_pipeline(config)
    json_line = partial(_json_line, configuration=terminal.configuration)
    lines = json_line if terminal.choice.as_json else RoundLines(terminal.choice.quiet, terminal.configuration)
    status = FreshStatus(partial(pipeline_status, pipeline), every=max(every, _LEAST_SECONDS_BETWEEN_STATUSES))
    monitor = FollowMonitor(pipeline.name, status, every=every)

    def report(done: FollowRound) -> None:
        if (text := lines(done)) is not None:
            terminal.line(text)
        if health_file is not None:
            _replace_file(health_file, json_line(done))
        monitor.note(done)

    with ExitStack() as stack:
        if listen is not None:
            terminal.say(f"serving http://{stack.enter_context(listening(listen, monitor))}/metrics and /healthz")
        stopping = stack.enter_context(stopping_on_signals())
        spark = stack.enter_context(renewable_session(pipeline.spark))
        Follower(pipeline, spark, every=every, stopping=stopping, report=report).run()
    return Outcome(None, "")


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT; a second SIGINT interrupts."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _json_line(done: FollowRound, configuration: Path | None) -> str:
    return json.dumps(with_pasted_hints(json_value(done), configuration), ensure_ascii=True)


@dataclass
class RoundLines:
    """The line of a round, for a person. What stops a table, or lets it wait, is told once, and so is that it is over.
    ``quiet``: of other rounds nothing is told. ``configuration``: as the call names it."""

    quiet: bool
    configuration: Path | None
    _told: tuple[object, ...] = ()

    def __call__(self, done: FollowRound) -> str | None:
        """None for a round that has nothing new."""
        before, self._told = self._told, (*done.errors, *(table.name for table in done.waiting))
        hints = zip_longest(done.errors, done.hints, fillvalue="")
        new = {error: pasted_hint(hint, self.configuration) for error, hint in hints if error not in before}
        waiting = tuple(table for table in done.waiting if table.name not in before)
        news = replace(done, errors=tuple(new), hints=tuple(new.values()), waiting=waiting)
        is_worth_it = self._told != before or not (self.quiet or news.is_idle)
        return _line(news) if is_worth_it else None


def _line(done: FollowRound) -> str:
    parts = [
        f"{done.at:%Y-%m-%d %H:%M:%S}",
        *(["last round"] if done.is_last else []),
        counted(done.windows, "window"),
        counted(done.changes, "change"),
    ]
    if done.snapshots:
        parts.append(f"snapshots of {', '.join(map(str, done.snapshots))}")
    parts += [f"mode of {table.name}: {table.what}" for table in done.modes]
    parts.append(f"{counted(len(done.applied), 'table')} written in {done.seconds:.1f} s")
    if done.lag_bytes is not None and done.lag_seconds is not None and done.lag_asked_at is not None:
        behind = "not captured" if done.is_last else f"{done.lag_seconds:.1f} s behind"
        parts.append(f"{size(done.lag_bytes)}, {behind}, at {done.lag_asked_at:%H:%M:%S}")
    parts += map(str, done.waiting)
    line = "; ".join([*parts, *(f"stopped: {error}" for error in done.errors)])
    return "\n".join([line, *(f"hint: {hint}" for hint in dict.fromkeys(done.hints) if hint)])


def _replace_file(file: Path, text: str) -> None:
    """Replaced atomically, so that readers always see a whole document."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(f"{text}\n")
    Path(temporary).replace(file)
