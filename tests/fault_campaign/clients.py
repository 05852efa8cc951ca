"""The processes that the faults strike: started ahead, kept as long as they live, and replaced when they do not."""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from spark_jobs.configuration import SparkOptions
from tests.fault_campaign.plan import Session
from tests.fixtures.standby_process import StandbyProcess, standby_process

_READY_SECONDS = 240


@dataclass
class Clients:
    """``spool``: where those without a JVM keep their temporary files. Errors of all go to one file."""

    folder: Path
    spool: Path
    jars: Path
    stack: ExitStack
    started: dict[Session, StandbyProcess] = field(default_factory=dict)

    @property
    def errors(self) -> Path:
        return self.folder / "clients.log"

    def of(self, session: Session) -> StandbyProcess:
        """One that is ready."""
        client = self.started.get(session)
        if client is None or client.ended:
            client = self.started[session] = self._start(session)
        client.wait_until_ready(_READY_SECONDS)
        return client

    def replace(self, session: Session) -> None:
        """After a fault that ended it, or its JVM. The new one starts while others are at work."""
        self.started[session].kill()
        self.started[session] = self._start(session)

    def _start(self, session: Session) -> StandbyProcess:
        if session == "none":
            arguments, environ = [], {"TMPDIR": str(self.spool)}
        else:
            master = "local[2]" if session == "local" else "local-cluster[2,1,1024]"
            file = self.folder / f"{session}.options"
            file.write_bytes(pickle.dumps(SparkOptions(master=master, jars=str(self.jars))))
            arguments, environ = [str(file)], {}
        return self.stack.enter_context(standby_process("tests.fault_campaign.client", arguments, self.errors, environ))
