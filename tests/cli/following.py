"""``postgres-cdc follow`` as a process that goes on, and the rounds that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli.command import Command
from tests.fixtures.java_processes import java_processes

_PATIENCE_SECONDS = 300
Round = dict[str, Any]


class Following:
    """The process, and the rounds that it has printed."""

    def __init__(self, command: Command, *options: str) -> None:
        arguments = [sys.executable, "-m", "cdc_assets.cli", "follow", "--config", str(command.configuration), *options]
        self.process = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **command.environment},
        )
        self.rounds: list[Round] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rounds.append(json.loads(line))

    def wait_for(self, what: Callable[[Round], object]) -> Round:
        """The first round from now on of which it holds."""
        count, deadline = len(self.rounds), time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            for done in self.rounds[count:]:
                if what(done):
                    return done
            time.sleep(0.2)
        raise AssertionError(f"not within {_PATIENCE_SECONDS} s; the last round: {self.rounds[-1:]}")

    def wait_until_shown(self) -> Round:
        """Until the tables show what is committed now: asked of the server after this call."""
        called = datetime.now(UTC)

        def asked_since(done: Round) -> bool:
            since = timedelta(seconds=done["lag_seconds"] or 0)
            return done["lag_bytes"] == 0 and datetime.fromisoformat(done["at"]) - since > called

        return self.wait_for(asked_since)

    def served_at(self) -> str:
        """The URL below which ``--listen`` serves."""
        assert self.process.stderr is not None
        _, scheme, rest = self.process.stderr.readline().partition("http://")
        return f"{scheme}{rest.partition('/')[0]}"

    def wait_for_end(self) -> Round:
        """The last round of a command that was told to stop."""
        assert self.process.wait(timeout=_PATIENCE_SECONDS) == 0
        self._reader.join()
        return self.rounds[-1]

    def kill_jvm(self) -> None:
        java = java_processes(self.process.pid)
        assert len(java) == 1
        java[0].kill()


@contextmanager
def following(command: Command, *options: str) -> Iterator[Following]:
    started = Following(command, *options)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.wait()
