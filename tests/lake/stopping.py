"""A process that stops itself (SIGSTOP) where it first enters a named function, and goes on when the test lets it.

``python -m tests.lake.stopping FUNCTION WORK``: a pickled call without arguments. Nothing of the product is replaced:
Python's profiler tells which functions are entered.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_SECONDS = 120


@dataclass(frozen=True)
class Stopped:
    """It stands at the function; it has entered it and done nothing there."""

    process: subprocess.Popen[bytes]
    work: Path

    def goes_on(self) -> Any:
        """To its end; what the call returned."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.wait(_SECONDS) == 0
        return pickle.loads(self.work.with_suffix(".result").read_bytes())  # noqa: S301 - our own file


@contextmanager
def stopped_at(function: str, call: Callable[[], object], folder: Path) -> Iterator[Stopped]:
    """``call`` in a process of its own; it is killed when the context ends, wherever it is."""
    work = folder / f"{function}.work"
    work.write_bytes(pickle.dumps(call))
    process = subprocess.Popen([sys.executable, "-m", "tests.lake.stopping", function, str(work)])
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it has ended without a call of {function}"
        yield Stopped(process, work)
    finally:
        process.kill()
        process.wait()


def main(function: str, work: str) -> None:
    call = pickle.loads(Path(work).read_bytes())  # noqa: S301

    stopped: list[str] = []

    def stop(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function and not stopped:
            stopped.append(function)
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGSTOP)

    threading.setprofile(stop)  # of the threads that the call starts
    sys.setprofile(stop)
    result = call()
    sys.setprofile(None)
    Path(work).with_suffix(".result").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
